"""Laws of steps that are a forward pass alone: inference and evaluation of the plans that train."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foretell
from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.model.evaluated import evaluated
from foretell.model.fold import unfold
from foretell.model.graph import Graph, check
from foretell.model.operators.dropout import Dropout, StochasticDepth
from foretell.model.totals import totals
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import fits, refusals
from foretell.plan.forward import RULE
from foretell.plan.job import Job
from foretell.plan.members import policies, strategies
from foretell.plan.policy import Policy
from foretell.plan.schedule import UNIT, replay, schedules
from foretell.plan.setting import Setting
from foretell.plan.strategy import Strategy
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.program.verify import verify
from foretell.timeline.memory_timeline import memory_timeline
from foretell.timeline.simulate import simulate
from law_examples import examples
from program_cases import load, traffic

SIZES = "layers=8,hidden=64,heads=8,vocab=256,seq=32"
LANGUAGE = (
    f"gpt:{SIZES},dropout=0.1",
    f"llama:{SIZES},kv_heads=4,head_dim=8,ffn=96",
    f"mixture:{SIZES},kv_heads=8,head_dim=8,ffn=32,experts=8,top_k=2",
)
IMAGES = ("resnet50", "vgg16", "unet3d:image=32")
TRAINERS = ("pytorch", "pytorch-compiled", "fsdp", "torchtitan", "megatron-core", "nanotron", "deepspeed")
ON = cluster("32xh100")


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


def joined(words: tuple[str, ...]) -> str:
    return " ".join(word for word in words if word)


PLANS = st.tuples(
    of("", "pp2:1f1b", "pp2:gpipe", "pp2:interleaved,v2", "pp2:zb-h1", "pp2:zb-v", "pp2:dualpipe", "pp2:dualpipe-v"),
    of("", "dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "dp2:ep2", "dp2:zero3,shard2"),
    of("", "cp2:ring", "cp2:alltoall"),
    of("", "tp2", "tp2:sp"),
    of("+m4", "+m8"),
    of("", "+bf16", "+amp_bf16", "+fp8"),
    of("", "+offload:weights", "+no-overlap", "+compiled", "+captured"),
).map(joined)
IMAGE_PLANS = st.tuples(
    of("", "dp2", "dp2:zero3"),
    of("", "spatial2", "filter2", "channel2", "pp2:gpipe", "pp4:1f1b"),
    of("+m4", "+m8"),
    of("", "+amp_bf16", "+no-overlap"),
).map(joined)


def asked(model: str | Graph, plan: str, trained_by: str = "pytorch", batch: int = 32) -> Setting:
    parsed = parse(plan)
    graph = load(model, batch // parsed.microbatches) if isinstance(model, str) else model
    return Setting(graph, Job(batch=batch), parsed, trainer(trained_by))


def forward(setting: Setting) -> Setting:
    return msgspec.structs.replace(setting, graph=evaluated(setting.graph))


def check_forward(training: Setting) -> tuple[Prediction, Prediction]:
    """All that holds of a forward pass whatever the plan; the training step, and it."""
    alone = forward(training)
    assume(fits(training, ON) and fits(alone, ON))
    whole, found = predict(training, ON), predict(alone, ON)
    assert found.forward and not whole.forward
    assert found.step_seconds < whole.step_seconds
    assert found.memory_bytes <= whole.memory_bytes
    assert found.model_flops < whole.model_flops
    assert not {"backward", "recompute", "optimizer"} & found.breakdown.keys()
    assert sum(found.breakdown.values()) == pytest.approx(found.step_seconds)
    for kind in ("gradients", "states", "new gradients", "trainer's copies", "update's copies", "cached gradients"):
        assert not found.memory.by_kind.get(kind)
    made = expand(lower(alone))
    assert verify(made, alone.graph) == ()
    assert {slot.kind for kind in made.kinds for slot in kind.slots} == {"F"}
    assert not any(what == "weight gradients" for *_, what in traffic(made))
    return whole, found


@given(of(*LANGUAGE), PLANS, of(*TRAINERS))
def test_a_forward_pass_takes_less_of_everything(model: str, plan: str, trained_by: str) -> None:
    check_forward(asked(model, plan, trained_by))


@examples(10)
@given(of(*IMAGES), IMAGE_PLANS, of("pytorch", "pytorch-compiled", "chainer"))
def test_of_images_too(model: str, plan: str, trained_by: str) -> None:
    check_forward(asked(model, plan, trained_by))


@given(of(*LANGUAGE), PLANS, of(*TRAINERS))
def test_composition_and_simulation_agree(model: str, plan: str, trained_by: str) -> None:
    setting = forward(asked(model, plan, trained_by))
    assume(fits(setting, ON))
    simulated = simulate(priced(setting, ON)).step_seconds
    assert predict(setting, ON).step_seconds == pytest.approx(simulated, rel=0.03)


# By hand. --------------------------------------------------------------------------------------------

WIDE = "llama:layers=8,hidden=2048,heads=16,vocab=8192,seq=1024,kv_heads=4,head_dim=128,ffn=4096,dtype=bf16"
ALONE = ("dp1", "dp8", "dp8:zero1", "dp4:zero3", "tp2", "tp4:sp", "dp2:zero3 tp2", "cp2:ring", "dp4 +m4")


@pytest.mark.parametrize("plan", ALONE)
@pytest.mark.parametrize("trained_by", ["pytorch", "pytorch-compiled", "fsdp"])
def test_it_is_the_forward_share_of_the_training_step(plan: str, trained_by: str) -> None:
    """Where no message runs beside kernels and no host is late: kernels and messages of the training step's forward
    slots, one after the other."""
    training = asked(WIDE, f"{plan} +bf16 +no-overlap +captured", trained_by)
    prices, share = priced(training, ON), Counter[str]()
    for kind, count, *_ in prices.signatures[0].layers:
        share.update({name: seconds * count for name, seconds in prices.kinds[kind].parts[0].items()})
    share.update(prices.traffic[0].beside("F"))
    share["exposed.dp"] -= prices.traffic[0].enter_forward  # FSDP2 lets go of what is in no layer on the way back
    found = predict(forward(training), ON)
    times = training.plan.microbatches
    assert found.breakdown == pytest.approx(
        {name: times * seconds for name, seconds in share.items() if seconds > 1e-12}
    )


@pytest.mark.parametrize("plan", ["dp1", "dp8:zero3", "pp4:1f1b +m8", "tp4:sp"])
def test_its_flops_are_a_third(plan: str) -> None:
    """A backward pass is twice a forward one (PaLM, appendix B); MFU counts what is done."""
    training = asked(WIDE, f"{plan} +bf16")
    whole, found = (predict(setting, ON) for setting in (training, forward(training)))
    assert found.model_flops == pytest.approx(whole.model_flops / 3)
    assert found.hardware_flops == found.model_flops
    peak = found.ranks * found.peak_flops * found.step_seconds
    assert found.utilisation == pytest.approx(found.model_flops / peak)


@pytest.mark.parametrize(("trained_by", "rests"), [("pytorch", 2), ("fsdp", 2), ("megatron-core", 2)])
@pytest.mark.parametrize(("plan", "ranks"), [("dp4", 1), ("dp4:zero1", 1), ("dp4:zero3", 4), ("tp4", 4)])
def test_weights_rest_as_layers_read_them(trained_by: str, rests: int, plan: str, ranks: int) -> None:
    """In 16 bits, without a master copy, also where the trainer keeps fp32 to update; in shares where the plan says."""
    setting = forward(asked(WIDE, f"{plan} +bf16", trained_by))
    memory = expand(lower(setting)).stages[0].memory
    elements = totals(setting.graph).parameters
    norms = elements * 0.002  # which a tensor axis does not divide
    assert memory.weights / rests == pytest.approx(elements / ranks, abs=norms)
    assert (memory.gradients, memory.states, memory.trained) == (0, 0, 0)


@pytest.mark.parametrize("name", sorted(schedules()))
def test_a_pipeline_is_a_stream_of_micro_batches(name: str) -> None:
    """Every micro-batch goes once through every stage, and no slot waits for one to come back: a rank idles while the
    pipeline fills, ranks - 1 slots, and not again."""
    schedule = schedules()[name].forward_only()
    ranks, count, chunks = 4, 16, schedule.least_chunks
    rows = replay(schedule, ranks, count, chunks, UNIT)
    slots = [block.block for row in rows for block in row]
    assert all(len(block) == 1 and block[0].kind == "F" for block in slots)
    ways = {(at, stage) for at in range(count) for stage in schedule.path(at, ranks, count, chunks)}
    assert {(block[0].microbatch, block[0].stage) for block in slots} == ways
    assert len(slots) == len(ways)
    fill = ranks - schedule.copies  # a stream from each end has half as far to go before all ranks are busy
    if schedule.folded and schedule.copies == 1:  # the way up a V begins where the way down ends
        fill = 2 * (ranks - 1)
    assert max(row[-1].end for row in rows) == len(slots) / ranks + fill


def test_nothing_is_in_flight_after_a_stage_has_sent_it_on() -> None:
    setting = forward(asked(WIDE, "pp4:1f1b +m8 +bf16"))
    found = memory_timeline(priced(setting, ON), ON).moments
    slots = [one for one in found if one.slot is not None]
    assert len(slots) == 8
    assert {tuple(one.in_flight.values()) for one in slots} == {(0,)}
    assert len({one.allocated for one in slots}) == 1


@pytest.mark.parametrize("model", [LANGUAGE[0], f"bert:{SIZES},ffn=128,dropout=0.1", "convnext-tiny", "resnet50"])
def test_models_are_evaluated(model: str) -> None:
    """Nothing is dropped, batch norms sum nothing, nothing is kept; work of products is that of the forward pass."""
    graph = load(model, 2)
    found = evaluated(graph)
    check(found)
    flat = unfold(found.blocks)
    assert not any(isinstance(node.operator, Dropout | StochasticDepth) for node in flat.nodes)
    assert not any(node.gradients for node in flat.nodes)
    assert {flat.tensors[number].role for node in flat.nodes for number in node.keeps} <= {"kept"}
    assert all(getattr(node.operator, "kind", "") != "batch" for node in flat.nodes)
    assert totals(found).trainable == 0
    assert totals(found).parameters == totals(graph).parameters


# What has no meaning. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "why", "way_out"),
    [
        ("dp8 +recompute:block", "nothing is kept that could run again", "dp8"),
        ("dp8 +lora8", "adapters are trained beside frozen weights", "dp8"),
        ("dp8 +lora8 +nf4", "adapters are trained beside frozen weights", "dp8"),
        ("dp8 +lora8 +adapt:attention", "adapters are trained beside frozen weights", "dp8"),
        ("dp8 +lora8 +dora", "adapters are trained beside frozen weights", "dp8"),
        ("dp8 +lora8 +fp32-adapters", "adapters are trained beside frozen weights", "dp8"),
        ("dp8 +compress:topk0.01", "no gradients travel", "dp8"),
        ("dp8 +bucket:25MB", "no gradients travel", "dp8"),
        ("dp8 +syncbn", "running averages", "dp8"),
        ("dp8 +loss:chunks", "gradients of the head", "dp8"),
        ("dp8 +offload:optimizer,weights", "no optimizer states", "dp8 +offload:weights"),
        ("ps8:async", "nothing is trained", "dp8"),
        ("ps8:ssp,s3", "nothing is trained", "dp8"),
        ("local8:tau4", "nothing is trained", "dp8"),
        ("gossip8", "nothing is trained", "dp8"),
        ("ring8", "nothing is trained", "dp8"),
        ("pp4:stash dp2 +m8", "versions of weights", "pp4:1f1b dp2 +m8"),
    ],
)
def test_what_is_about_training_alone_is_refused_with_a_way_out(plan: str, why: str, way_out: str) -> None:
    training = asked(WIDE, f"{plan} +bf16")
    found = tuple(refusals(forward(training), ON))
    assert {one.rule for one in found} == {RULE}
    assert why in found[0].why
    assert parse(found[0].way_out.partition("'")[2].partition("'")[0]) == parse(f"{way_out} +bf16")
    assert RULE not in {one.rule for one in refusals(training, ON)}


@pytest.mark.parametrize(("word", "why"), [("+nf4", "beside; inference"), ("+adapt:value", "none are")])
def test_words_about_adapters_are_refused_without_them(word: str, why: str) -> None:
    """A way out that adds adapters would be refused again."""
    found = tuple(refusals(forward(asked(WIDE, f"dp8 {word} +bf16")), ON))
    assert [one.rule for one in found] == [RULE]
    assert why in found[0].why
    assert found[0].way_out == "--plan 'dp8 +bf16'"


@pytest.mark.parametrize("member", [*strategies().values(), *policies().values()])
def test_every_strategy_and_policy_is_predicted_or_refused(member: type[Strategy] | type[Policy]) -> None:
    """With its own example, beside what it needs: no member is forgotten."""
    beside = dict.fromkeys(("adapt", "base", "variant", "wide_adapters"), "+lora8")
    beside |= {"pp": "+m8", "imbalance": "dp2:ep2", "a2a_overlap": "dp2:ep2 +m2", "partitioned": "tp2 +recompute:block"}
    needs = beside.get(member.word, "")
    images = dict.fromkeys(("spatial", "filter", "channel", "batchnorm"), "resnet50")
    model = (images | {"variant": LANGUAGE[1]}).get(member.word, LANGUAGE[2])
    data = "dp2 " if issubclass(member, Policy) and "dp" not in needs else ""
    trained_by = "megatron-core" if member.word == "a2a_overlap" else "pytorch"
    setting = asked(model, f"{data}{member.example} {needs}", trained_by)
    assert fits(setting, ON)
    alone = forward(setting)
    if not fits(alone, ON):
        found = tuple(refusals(alone, ON))
        assert {one.rule for one in found} == {RULE}
        mended = parse(found[0].way_out.partition("'")[2].partition("'")[0])
        assert mended.ranks == setting.plan.ranks
        assert member.word not in {policy.word for policy in mended.policies}
        return
    assert predict(alone, ON).step_seconds < predict(setting, ON).step_seconds


def test_limits_of_training_alone_are_not_reported() -> None:
    """Kahira et al. 2021, Table 6, column I: all limits but gradient exchange and weight update are there in inference.

    Each is shown where it is largest: at batches of one sample, across nodes.
    """
    trains, infers = Counter[str](), Counter[str]()
    for plan in (
        "dp32",
        "dp32:zero3 +captured",
        "tp16 dp2",
        "pp8:gpipe dp4 +m2",
        "pp8:gpipe,split=2/1/1/1/1/1/1/0 dp4 +m2",
    ):
        training = asked(WIDE, f"{plan} +bf16", batch=64)
        trains.update(one.name for one in predict(training, ON).bottlenecks)
        infers.update(one.name for one in predict(forward(training), ON).bottlenecks)
    only_training = {"gradient exchange", "weight update"}
    assert only_training & trains.keys()
    assert not only_training & infers.keys()
    assert {"weight gathers", "layer-wise collectives", "pipeline bubble"} <= infers.keys()


@pytest.mark.parametrize(
    ("fixed", "way_out"),
    [
        ("+lora16", ""),
        ("+recompute:block", ""),
        ("+lora16 +nf4", ""),
        ("+adapt:attention +lora16", ""),
        ("+compress:topk0.01", ""),
        ("+offload:optimizer", ""),
        ("pp2 +lora16 +offload:optimizer,weights", "pp2 +offload:weights"),
        ("tp2 ps2:async +m2", "dp2 tp2 +m2"),
    ],
)
def test_what_is_about_training_alone_cannot_be_fixed(fixed: str, way_out: str) -> None:
    """`predict` refuses every plan with it, so the search has none to recommend."""
    asked_for = {"model": WIDE, "on": "4xh100", "batch": 8, "forward": True}
    with pytest.raises(BadInput, match=RULE) as told:
        foretell.plan(**asked_for, fix=fixed)
    assert told.value.fix == (f"--fix '{way_out}'" if way_out else "the same without --fix")
    found = foretell.plan(**asked_for, fix=way_out)
    assert found.fastest is not None
    foretell.predict(WIDE, "4xh100", str(found.fastest.plan), 8, forward=True)


def test_the_search_finds_the_fastest_forward_pass() -> None:
    """Bounds leave out nothing that wins, every plan is priced as `predict` does, and none speaks of gradients."""
    asked_for = {"model": WIDE, "on": "8xh100", "batch": 64, "forward": True}
    bounded, whole = (foretell.plan(**asked_for, exhaustive=every) for every in (False, True))
    assert bounded.fastest is not None and whole.fastest is not None
    assert bounded.fastest.step_seconds == whole.fastest.step_seconds
    for one in (bounded.fastest, whole.plans[len(whole.plans) // 2]):
        found = foretell.predict(WIDE, "8xh100", str(one.plan), 64, forward=True)
        assert found.step_seconds == pytest.approx(one.step_seconds, rel=1e-9)
        assert found.memory_bytes == pytest.approx(one.memory_bytes, rel=1e-9)
    words = {policy.word for one in whole.plans for policy in parse(str(one.plan)).policies}
    assert not words & {"recompute", "offload", "lora", "compress"}
