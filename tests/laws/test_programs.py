"""Laws that programs of all strategies, degrees and families of models obey."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model.operator import NOTHING, OperatorPart
from foretell.model.resize import skeleton, with_samples
from foretell.model.totals import totals
from foretell.plan.members import strategies as all_strategies
from foretell.plan.text import parse
from foretell.program.expanded import ExpandedProgram
from foretell.program.mesh import mesh
from foretell.program.sharding.propagate import propagate
from foretell.program.verify import verify
from law_examples import reached
from program_cases import WIDTH, Found, load, matrix_flops, program, traffic, work

SIZES = "layers=4,hidden=64,heads=8,vocab=256,seq=32"
LLAMA = f"llama:{SIZES},kv_heads=4,head_dim=8,ffn=96"
GPT = f"gpt:{SIZES}"
BERT = f"bert:{SIZES},ffn=128"
MIXTURE = f"mixture:{SIZES},kv_heads=8,head_dim=8,ffn=32,experts=8,top_k=2"
LANGUAGE = (LLAMA, GPT, BERT, MIXTURE)

IMAGES = ("resnet18:image=64,classes=16", "vgg11:image=32,classes=16", "alexnet:image=96,classes=16", "unet:image=64")
MODELS = (*LANGUAGE, *IMAGES)

OTHERS = (
    "vit:layers=2,hidden=64,heads=8,image=32,patch=8",
    "t5:layers=2,hidden=64,heads=8,vocab=256,seq=32",
    f"deepseek:{SIZES}",
    f"deepseek:{SIZES},mtp=1",
    "inception",
    "lstm",
)

FUSED = "megatron-core"
PER_STEP = ("weight gradients", "weights")
"""What travels because of weights; all else belongs to samples."""

ONE_RANK = {
    "dp": "dp1:zero3",
    "tp": "tp1:sp",
    "cp": "cp1:ring",
    "pp": "pp1:1f1b",
    "ps": "ps1:sync",
    "local": "local1:tau4",
    "gossip": "gossip1",
    "ring": "ring1",
    "spatial": "spatial1",
    "filter": "filter1",
    "channel": "channel1",
}


# What to ask. ----------------------------------------------------------------------------------------


def of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


DATA = of("", "dp2", "dp4", "dp2:zero1", "dp4:zero2", "dp2:zero3", "dp2:zero3,shard2")
EXPERTS = of("", "dp2:ep2", "dp4:zero1,ep2", "dp4:zero3,ep4", "dp2:ep2,etp1")
TENSOR = of("", "tp2", "tp4", "tp2:sp", "tp4:sp")
CONTEXT = of("", "cp2:ring", "cp4:ring", "cp2:alltoall")
PIPELINE = of("", "pp2:gpipe", "pp2:1f1b", "pp4:1f1b", "pp2:interleaved,v2", "pp2:zb-h1", "pp2:zb-v", "pp2:stash")
TWO_WAY = of("pp2:dualpipe", "pp2:dualpipe-v")
SPATIAL = of("", "spatial2", "spatial4", "spatial2x2")
PARTS = {
    IMAGES[0]: of("spatial2[conv1..layer2.0]", "spatial2x2[conv1..layer1]:data", "spatial4[layer1.1..layer3]:data"),
    IMAGES[1]: of("spatial2[features.0..features.4]:data", "spatial4[features.3..features.8]"),
    IMAGES[2]: of("spatial2[features.0..features.5]:data", "spatial2x2[features.0]:data"),
    IMAGES[3]: of("spatial4[encoder*]:data", "spatial2[up*,decoder*]:data", "spatial2x2[encoder.0..encoder.3]"),
}
LAYERS = of("", "filter2", "filter4", "channel2", "channel4")
SYNCHRONOUS = of("", "ps4:sync", "ps4:async,k2", "ps4:sync,group2", "local4:tau5", "gossip4", "ring4")
RECOMPUTE = of("", "", "+recompute:attention", "+recompute:block", "+recompute:full")


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, int, str]:
    """Any model under any plan that suits its kind."""
    model = draw(of(*MODELS))
    data = draw(SYNCHRONOUS | (EXPERTS if model == MIXTURE else DATA))
    inside = [TENSOR, CONTEXT] if model in LANGUAGE else [SPATIAL | PARTS[model], LAYERS]
    axes = [draw(PIPELINE | TWO_WAY), data, *(draw(axis) for axis in inside)]
    count = draw(st.sampled_from((4, 8))) if axes[0] else draw(st.sampled_from((1, 2)))
    text = " ".join(part for part in (*axes, f"+m{count}", draw(RECOMPUTE)) if part)
    return model, text, 8 * count, draw(of("pytorch", FUSED))


def total_work(model: str, batch: int) -> OperatorPart:
    graph = totals(load(model, batch))
    return graph.forward + graph.backward


def short(value: object) -> str | None:
    """How a case is called: a model by its family."""
    return value.split(":")[0] if value in (*MODELS, *OTHERS) and isinstance(value, str) else None


# One program. ----------------------------------------------------------------------------------------


@given(cases())
def test_every_program_verifies(case: tuple[str, str, int, str]) -> None:
    model, plan, batch, trainer = case
    made = program(model, plan, batch, trainer)
    assert verify(made, load(model, batch // made.microbatches)) == ()


@given(cases())
def test_messages_carry_something_along_axes_that_exist(case: tuple[str, str, int, str]) -> None:
    made = program(*case)
    axes = {axis.name: axis.ranks for axis in made.axes}
    assert made.ranks == prod(axes.values()) == parse(case[1]).ranks
    for kind in made.kinds:
        for message, times in made.communications(kind):
            assert message.payload > 0
            assert message.sent > 0 or message.kind in ("receive", "pull")
            assert times > 0
            assert set(message.axes) <= set(axes)
            assert 1 < message.ranks <= prod(axes[name] for name in message.axes)


@pytest.mark.reaches(exactly=3)
@given(cases())
def test_no_rank_is_spared_work(case: tuple[str, str, int, str]) -> None:
    """All ranks together do what the model needs; more only where something runs again, whole or on uneven shares."""
    model, plan, batch, _ = case
    made = program(*case)
    needed = total_work(model, batch // made.microbatches).matrix * made.microbatches
    done = matrix_flops(made)
    assert done >= needed
    if "+recompute" not in plan and not made.notes and model in LANGUAGE:
        reached("exactly")
        assert done == needed


@pytest.mark.reaches(pipeline=5)
@given(cases())
def test_what_is_sent_is_received(case: tuple[str, str, int, str]) -> None:
    """Over all places of the pipeline, for values and gradients."""
    made = program(*case)
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for place in range(len(made.kinds)):
        for (kind, axes, what), (count, payload) in traffic(made, place).items():
            if kind in ("send", "receive"):
                assert axes == "pp"
                old = found.get((kind, what), (0, 0))
                found[kind, what] = (old[0] + count, old[1] + payload)
    for what in ("activations", "gradients"):
        assert found.get(("send", what)) == found.get(("receive", what))
    assert bool(found) == (len(made.kinds) > 1)
    if found:
        reached("pipeline")


def test_every_strategy_has_a_plan_of_one_rank() -> None:
    assert set(ONE_RANK) == set(all_strategies())


@pytest.mark.parametrize("word", all_strategies())
@pytest.mark.parametrize("model", MODELS, ids=short)
def test_one_rank_changes_nothing(word: str, model: str) -> None:
    made = program(model, f"{ONE_RANK[word]} +m2", 4)
    assert traffic(made) == {}
    assert made.notes == load(model, 2).warnings
    assert work(made) == total_work(model, 2) * 2


@pytest.mark.parametrize("data", ["dp2", "dp4", "dp2:zero1", "dp2:zero3", "dp2 +recompute:block"])
@pytest.mark.parametrize("model", (*MODELS, *OTHERS), ids=short)
def test_data_sums_each_weight_once(model: str, data: str) -> None:
    """Nothing travels but gradients and shares of weights, and of each weight's gradient all of it."""
    found = traffic(program(model, data, 8))
    assert {what for _, _, what in found} <= set(PER_STEP)
    summed = sum(payload for (_, _, what), (_, payload) in found.items() if what == "weight gradients")
    needed = totals(load(model, 8)).trainable * WIDTH
    assert summed == needed or ("zero" in data and needed < summed < 1.01 * needed)  # a last row is padded


# Work. -----------------------------------------------------------------------------------------------

EVERYTHING = {
    LLAMA: (
        "dp4",
        "dp2:zero3",
        "tp2",
        "tp4:sp",
        "cp4:ring",
        "cp2:alltoall",
        "pp4:1f1b",
        "dp2 tp2 pp2:zb-h1",
        "cp2 tp2",
    ),
    GPT: ("dp4:zero2", "tp4", "tp2:sp", "cp4:alltoall", "pp2:dualpipe", "dp2 cp2 tp2", "pp2:interleaved,v2 tp2"),
    BERT: ("dp4", "pp4:gpipe", "dp2 pp2:1f1b"),
    MIXTURE: ("dp4", "dp4:zero1,ep2", "dp4:ep4", "pp4:1f1b", "dp2:ep2 pp2:zb-v"),
    IMAGES[0]: (
        "dp4",
        "filter4",
        "dp2 filter2",
        "pp2:1f1b",
        "dp2 pp2:gpipe filter2",
        "spatial4[conv1..layer2]:data",
        "dp2 spatial2[conv1..layer3.0]:data",
    ),
    IMAGES[1]: ("dp4", "filter4", "dp2 filter2"),
    IMAGES[2]: ("dp2", "filter4", "ps4:sync", "local4:tau2", "gossip4", "ring4"),
    IMAGES[3]: (
        "dp2",
        "filter2",
        "spatial2",
        "spatial4",
        "spatial2x2",
        "dp2 spatial2",
        "spatial4[encoder.0..encoder.2]:data",
        "spatial2x2[encoder*]:data",
        "dp2 spatial2[decoder*]:data",
    ),
}
"""Plans that divide every operator with matrix work, with sizes that divide."""


@pytest.mark.parametrize(
    ("model", "plan"), [(model, plan) for model, plans in EVERYTHING.items() for plan in plans], ids=short
)
def test_work_is_conserved(model: str, plan: str) -> None:
    count = 4 if "pp" in plan else 1
    made = program(model, f"{plan} +m{count}", 4 * count, FUSED)
    assert matrix_flops(made) == total_work(model, 4).matrix * count


@pytest.mark.parametrize(
    "axes", ["dp2", "tp4", "tp2:sp", "dp2 tp2", "cp2:ring", "pp2:1f1b", "pp2:zb-v", "pp2:gpipe dp2"]
)
@pytest.mark.parametrize("policy", ["block", "full", "attention"])
@pytest.mark.parametrize("model", [LLAMA, GPT], ids=short)
def test_recompute_adds_the_forward_work_of_layers(model: str, policy: str, axes: str) -> None:
    plain = program(model, f"{axes} +m4", 16, FUSED)
    made = program(model, f"{axes} +m4 +recompute:{policy}", 16, FUSED)
    graph = load(model, 4)
    forward = 0
    for block, node in graph.nodes():
        if node.path.startswith("layers.") and (policy != "attention" or node.kind == "attention"):
            forward += node.cost("forward", graph.widths(block, node)).matrix * block.times
    assert forward > 0
    assert matrix_flops(made) - matrix_flops(plain) == forward * 4
    for place in range(len(made.kinds)):
        assert work(made, place, again=False) == work(plain, place)
        assert work(plain, place, again=True) == NOTHING


@pytest.mark.parametrize("axes", ["dp2", "pp2:1f1b", "pp2:interleaved,v2", "dp2:zero3", "pp2:1f1b,split=3/1 dp2:zero1"])
@pytest.mark.parametrize(
    ("policy", "again"), [("first1", (1,)), ("first3", (1, 2, 3)), ("nth2", (2, 4)), ("nth3", (3,))]
)
def test_some_layers_of_a_stage_add_their_forward_work(axes: str, policy: str, again: tuple[int, ...]) -> None:
    """Of each stage the layers of these places, from 1. Weights travel as they do where nothing runs again."""
    plain = program(LLAMA, f"{axes} +m4", 16, FUSED)
    made = program(LLAMA, f"{axes} +m4 +recompute:{policy}", 16, FUSED)
    stages = {"dp2": (4,), "dp2:zero3": (4,), "pp2:1f1b": (2, 2), "pp2:interleaved,v2": (1, 1, 1, 1)}.get(axes, (3, 1))
    count = sum(place <= layers for layers in stages for place in again)
    graph = load(LLAMA, 4)
    layers = [(block, node) for block, node in graph.nodes() if node.path.startswith("layers.")]
    forward = sum(node.cost("forward", graph.widths(block, node)).matrix * block.times for block, node in layers) / 4
    assert matrix_flops(made) - matrix_flops(plain) == forward * 4 * count
    assert weight_messages(made) == weight_messages(plain)
    assert "dp2" not in axes or sum(weight_messages(plain).values())


def weight_messages(made: ExpandedProgram) -> Counter[tuple[str, str]]:
    """Bytes of weights and their gradients that are sent, by message."""
    found = Counter[tuple[str, str]]()
    for kind in made.kinds:
        for message, times in made.communications(kind):
            if message.what in PER_STEP:
                found[message.kind, message.what] += times * int(message.sent)
    return found


# Two programs. ---------------------------------------------------------------------------------------


def of_samples(found: Found) -> Found:
    return {key: value for key, value in found.items() if key[2] not in PER_STEP}


def of_weights(found: Found) -> Found:
    return {key: value for key, value in found.items() if key[2] in PER_STEP}


def divided(found: Found, by: float) -> Found:
    return {key: (count, payload / by) for key, (count, payload) in found.items()}


def places(made: ExpandedProgram) -> range:
    return range(len(made.kinds))


INSIDE = {
    LLAMA: ("tp2", "tp4:sp", "cp2:ring", "cp2:alltoall", "pp2:1f1b", "tp2 cp2", "pp2:zb-h1 tp2"),
    GPT: ("tp4", "cp4:ring", "pp4:gpipe", "pp2:dualpipe tp2"),
    MIXTURE: ("tp2", "pp2:1f1b", "cp2:ring"),
    IMAGES[0]: ("filter2", "channel4", "spatial2", "pp2:1f1b"),
    IMAGES[2]: ("filter4", "channel2", "spatial2", "filter2 pp2:1f1b"),
    IMAGES[3]: ("filter2", "channel2", "spatial4", "spatial2x2"),
}
PAIRS = [(model, plan) for model, plans in INSIDE.items() for plan in plans]


@pytest.mark.parametrize(("model", "inside"), PAIRS, ids=short)
def test_twice_the_data_ranks_halve_what_belongs_to_samples(model: str, inside: str) -> None:
    two, four = (program(model, f"dp{ranks} {inside} +m4", 32, FUSED) for ranks in (2, 4))
    for place in places(two):
        assert of_samples(traffic(four, place)) == divided(of_samples(traffic(two, place)), 2)
        assert of_weights(traffic(four, place)) == of_weights(traffic(two, place))


@pytest.mark.parametrize(("model", "inside"), PAIRS, ids=short)
@pytest.mark.parametrize("data", ["dp2", "dp2:zero1"])
def test_micro_batches_multiply_what_belongs_to_samples(model: str, inside: str, data: str) -> None:
    once, thrice = (program(model, f"{data} {inside} +m{4 * times}", 32 * times, FUSED) for times in (1, 3))
    for place in places(once):
        samples = of_samples(traffic(once, place))
        assert of_samples(traffic(thrice, place)) == {key: (3 * n, 3 * size) for key, (n, size) in samples.items()}
        assert of_weights(traffic(thrice, place)) == of_weights(traffic(once, place))


def test_micro_batches_gather_and_sum_shares_each_time() -> None:
    """zero3: also what travels because of weights is multiplied."""
    once, thrice = (traffic(program(LLAMA, f"dp4:zero3 tp2 +m{m}", 8 * m)) for m in (1, 3))
    assert thrice == {key: (3 * count, 3 * payload) for key, (count, payload) in once.items()}


PRODUCTS = [
    # model, one axis, another, what the other divides of the one's payloads, and the other way round
    (LLAMA, "tp2", "dp2", 2, None),
    (LLAMA, "tp2", "cp2:ring", 2, 2),
    (LLAMA, "tp2:sp", "cp2:ring", 2, 2),
    (LLAMA, "tp2", "cp2:alltoall", 2, 2),
    (LLAMA, "cp4:ring", "dp2", 2, None),
    (LLAMA, "cp2:alltoall", "dp4", 4, None),
    (GPT, "tp4", "dp2", 2, None),
    (GPT, "cp2:ring", "tp2", 2, 2),
    (MIXTURE, "cp2:ring", "dp4:ep4", 4, 2),
    (IMAGES[0], "filter4", "dp2", 2, None),
    (IMAGES[0], "spatial2", "dp4", 4, None),
    (IMAGES[2], "channel2", "dp2", 2, None),
    (IMAGES[3], "filter2", "spatial2", 2, None),
    (IMAGES[3], "spatial4", "dp2", 2, None),
]


@pytest.mark.parametrize(("model", "one", "other", "of_one", "of_other"), PRODUCTS, ids=short)
def test_hybrids_are_products(model: str, one: str, other: str, of_one: int, of_other: int | None) -> None:
    """Along an axis of a product there is what was there alone, as often, on the other axes' share."""
    both = of_samples(traffic(program(model, f"{other} {one}", 8, FUSED)))
    for alone, divisor in ((one, of_one), (other, of_other)):
        found = of_samples(traffic(program(model, alone, 8, FUSED)))
        axes = {key[1] for key in found}
        if divisor is not None:
            assert {key: value for key, value in both.items() if key[1] in axes} == divided(found, divisor)


@pytest.mark.parametrize(
    ("model", "plan"), [(LLAMA, "tp2"), (LLAMA, "tp2:sp"), (GPT, "cp2:ring"), (IMAGES[0], "filter2")], ids=short
)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "interleaved,v2"])
def test_a_pipeline_only_shares_out_what_layers_do(model: str, plan: str, schedule: str) -> None:
    """The messages inside layers, of all stages together, are those without a pipeline."""
    alone = of_samples(traffic(program(model, f"{plan} +m4", 8, FUSED)))
    made = program(model, f"pp2:{schedule} {plan} +m4", 8, FUSED)
    found: Found = {}
    for place in places(made):
        for key, (count, payload) in of_samples(traffic(made, place)).items():
            if key[1] != "pp":
                old = found.get(key, (0, 0))
                found[key] = (old[0] + count, old[1] + payload)
    assert found == alone


ORDERED = [
    (LLAMA, ("dp2:zero3", "cp2:ring", "tp2:sp")),
    (LLAMA, ("pp2:1f1b", "dp2", "tp4")),
    (GPT, ("dp2:zero1", "cp2:alltoall", "pp2:zb-v")),
    (MIXTURE, ("dp4:zero1,ep2", "tp2", "pp2:1f1b")),
    (IMAGES[3], ("dp2", "spatial2x2", "filter2")),
    (IMAGES[0], ("ps4:sync", "channel2")),
]


@pytest.mark.parametrize(("model", "axes"), ORDERED, ids=short)
def test_the_order_of_axes_changes_only_strides(model: str, axes: tuple[str, ...]) -> None:
    found = []
    for order in permutations(axes):
        made = program(model, f"{' '.join(order)} +m4", 32, FUSED)
        inside = 1
        for axis in reversed(made.axes):
            assert axis.stride == inside
            inside *= axis.ranks
        alike = [
            {(kind, frozenset(names.split("+")), what): value for (kind, names, what), value in found.items()}
            for found in (traffic(made, place) for place in places(made))
        ]
        found.append(
            (alike, [work(made, place) for place in places(made)], sorted((a.name, a.ranks) for a in made.axes))
        )
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize("plan", ["tp2", "tp4:sp", "cp2:ring", "cp4:alltoall", "dp2:ep2,etp1 tp2"])
@pytest.mark.parametrize("model", [LLAMA, GPT, MIXTURE, f"deepseek:{SIZES}"], ids=lambda model: model.partition(":")[0])
def test_axes_that_ask_for_no_samples_divide_all_numbers_of_them_alike(model: str, plan: str) -> None:
    asked = [axis for axis in mesh(parse(plan)) if not axis.splitting.asks_samples]
    graph = load(model, 4)
    for axis, samples in product(asked, (1, 2, 3, 4, 8, 16, 64)):
        assert propagate(with_samples(graph, samples), axis) == propagate(skeleton(graph), axis)
