"""Rollouts against published rates, and by hand; phases against what PyTorch counts."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from agreement import MISSING
from foretell import modules
from foretell.errors import BadInput
from foretell.hardware.catalog import cluster
from foretell.model.decoding import caches, decoding
from foretell.model.evaluated import evaluated
from foretell.model.graph import check
from foretell.model.scored import scored
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.oracle.alignment import Alignment, aligned
from foretell.oracle.alignment_question import AlignmentQuestion
from foretell.oracle.lengths import ExampleLengths, read_lengths
from foretell.oracle.phase import METHODS, method
from foretell.oracle.predicted import predicted
from foretell.oracle.replica import Replica
from foretell.oracle.replica import read as replica
from foretell.oracle.request import read
from foretell.oracle.rollout import SPREAD, AnswerLoad, Rollout, Writer

SCORE = Path(__file__).parents[2] / "studies" / "published_rollouts" / "score.py"


def all_alike(tokens: int) -> ExampleLengths:
    return ExampleLengths(counts=((tokens, 1),), most=tokens)


def test_published_rates_lie_in_the_interval() -> None:
    """None of them was used for a constant; engines of 2023 and 2024, in 16 bits."""
    study = runpy.run_path(str(SCORE))
    found = study["rates"]()
    assert len(found) == 10
    assert all(1 / SPREAD < one.ratio < SPREAD for one in found)
    mean, worst = study["spread"](found)
    assert mean < 1.15 and worst < 1.65


def test_caches_by_hand() -> None:
    """Keys and values of 8 heads of 128 in 32 layers, 2 bytes each: 128 KiB a token; four ranks have two heads each,
    and sixteen one, though there are but eight."""
    (layer,) = caches(load("llama3-8b", 1, 128, "bf16"))
    assert layer.bytes(1) == 2 * 2 * 8 * 128 * 32 == 131_072
    assert layer.bytes(1, 4) == 131_072 / 4
    assert layer.bytes(1, 16) == 131_072 / 8
    windows = {layer.window: layer.layers for layer in caches(load("gpt-oss-20b", 1, 256, "bf16"))}
    assert windows == {128: 12, 0: 12}
    (some,) = (layer for layer in caches(load("gpt-oss-20b", 1, 256, "bf16")) if layer.window)
    assert some.bytes(1000) == some.bytes(128)


@pytest.mark.parametrize("model", ["resnet50", "bert:layers=2", "jamba", "qwen3_next", "nemotron_h", "mamba2"])
def test_what_writes_no_tokens_is_refused(model: str) -> None:
    with pytest.raises(BadInput) as caught:
        caches(load(model, 1))
    assert caught.value.fix


def test_decoding_multiplies_what_a_token_needs() -> None:
    """Two flops a weight that is multiplied, for each answer: all but the table that tokens are looked up in."""
    graph = decoding(evaluated(load("llama3-8b", 16, 1, "bf16")))
    check(graph)
    assert totals(graph).forward.matrix == 2 * 16 * (8_030_261_248 - 128_256 * 4_096 - 65 * 4_096)


def test_caches_of_latents_by_hand() -> None:
    """DeepSeek-V3: 512 numbers and a turning key of 64 in 61 layers, 2 bytes each, whole on each rank (its report,
    arXiv 2412.19437, table of hyperparameters; DeepSeek-V2, arXiv 2405.04434, table 1)."""
    (own, *others) = layers = caches(load("deepseek-v3", 1, 128, "bf16"))
    assert sum(layer.layers for layer in layers) == 61
    assert sum(layer.bytes(1) for layer in layers) == 61 * (512 + 64) * 2 == 70_272
    assert own.bytes(1, 8) == own.bytes(1) and own.flops(1, 8) == own.flops(1) / 8
    assert own.flops(1) == own.layers * 2 * 128 * (512 + 64 + 512)
    assert all(one.products == own.products for one in others)


def test_replicas_by_hand() -> None:
    """Stages share layers out, tensor ranks heads; ranks that share experts out have answers of their own."""
    one, staged, shared = (Writer("deepseek-v2-lite", cluster("16xh100"), form) for form in
                           (Replica(), Replica(stages=2), Replica(experts=4)))  # fmt: skip
    assert staged.cache(100) == one.cache(100) / 2 and shared.cache(100) == one.cache(100)
    assert 0.4 < staged.weights / one.weights < 0.6
    assert 0.25 < shared.weights / one.weights < 0.4
    assert one.step(64) < shared.step(64) * 4 and shared.step(64) < one.step(256)
    assert staged.step(64) < 1.5 * one.step(64)
    tensor, wide = Writer("llama3-8b", cluster("8xh100"), Replica(2)), Writer("llama3-8b", cluster("8xh100"), Replica())
    assert tensor.cache(100) == wide.cache(100) / 2


def test_replicas_are_read_as_they_are_told() -> None:
    for text in ("tp1", "tp4", "pp2 tp8", "ep16", "pp2 ep8 tp2"):
        assert str(replica(text)) == text
    assert replica("tp8,pp2") == Replica(8, 2)
    for wrong in ("", "tp0", "dp4", "tp4 tp2", "4"):
        with pytest.raises(BadInput):
            replica(wrong)


def written(answers: AnswerLoad, cut: int = 1, gigabytes: float = 70.0, slots: int = 1024) -> Rollout:
    return Writer("llama3.2-1b", cluster("8xh100"), Replica(cut)).write(answers, 8 // cut, gigabytes * 1e9, slots)


def test_rollouts_take_longer_where_there_is_more_to_write() -> None:
    answers = AnswerLoad(prompts=64, each=8, prompt=256, lengths=read_lengths("600,2048"))
    usual = written(answers)
    more = written(AnswerLoad(prompts=128, each=8, prompt=256, lengths=answers.lengths))
    longer = written(AnswerLoad(prompts=64, each=8, prompt=256, lengths=read_lengths("900,2048")))
    tail = written(AnswerLoad(prompts=64, each=8, prompt=256, lengths=read_lengths("600,4096")))
    few = written(answers, slots=8)
    assert usual.seconds < min(more.seconds, longer.seconds, tail.seconds, few.seconds)
    assert tail.tail_seconds > usual.tail_seconds
    assert written(answers, 4).weights_bytes < 0.3 * usual.weights_bytes
    assert written(answers, gigabytes=3.0).slots < usual.slots == 64


def test_answers_all_alike_end_together() -> None:
    """By hand: as many steps as tokens, each with the cache of the middle."""
    answers = AnswerLoad(prompts=64, each=1, prompt=256, lengths=all_alike(512))
    writer = Writer("llama3.2-1b", cluster("8xh100"), Replica())
    found = writer.write(answers, 8, 70e9)
    reading = 8 * writer.cache(256 + 512 / 2) / (0.8 * cluster("8xh100").device.memory_bandwidth)
    assert found.decode_seconds == pytest.approx(512 * (writer.step(8) + reading), rel=1e-9)
    assert found.tail_seconds == 0
    assert found.slots == 8


def test_too_little_memory_is_refused() -> None:
    answers = AnswerLoad(prompts=8, each=1, prompt=256, lengths=all_alike(512))
    with pytest.raises(BadInput, match="hold no weights"):
        written(answers, gigabytes=2.0)


def test_answers_of_one_length_are_full_together() -> None:
    """By hand: 8,448 tokens of 128 KiB are 1.03 GiB of cache, of which 40 GiB beside 15 of weights hold 24."""
    answers = AnswerLoad(prompts=512, each=1, prompt=256, lengths=all_alike(8192))
    writer = Writer("llama3-8b", cluster("1xh100"), Replica())
    found = writer.write(answers, 1, 40 * 2**30)
    assert found.slots == (40 * 2**30 - writer.weights) // (8448 * 131_072) == 24
    assert found.cache_bytes == 24 * 8448 * 131_072


@pytest.mark.parametrize("lengths", ["600,2048", "200,4096"])
def test_the_cache_is_never_fuller_than_its_room(lengths: str) -> None:
    """A place for one answer more would be, and less is room for fewer."""
    answers = AnswerLoad(prompts=256, each=8, prompt=256, lengths=read_lengths(lengths))
    some, fewer = (written(answers, gigabytes=room) for room in (4.0, 3.2))
    more = written(answers, slots=some.slots + 1)
    assert some.bytes <= 4e9 < more.bytes
    assert fewer.bytes <= 3.2e9 and fewer.slots < some.slots


# scores


def test_a_score_in_place_of_logits_by_hand() -> None:
    """Llama-3 8B with one column: its head has 4,096 weights in place of 128,256 x 4,096. A tied head leaves its table
    to the embedding."""
    untied, tied = (totals(scored(load(model, 2, 256, "bf16"))) for model in ("llama3-8b", "llama3.2-1b"))
    assert untied.parameters == 8_030_261_248 - 128_256 * 4_096 + 4_096 == 7_504_928_768
    assert tied.parameters == 1_235_814_400 + 2_048
    whole = totals(load("llama3-8b", 2, 256, "bf16"))
    assert whole.forward.matrix - untied.forward.matrix == 2 * 2 * 256 * 4_096 * 128_255
    with pytest.raises(BadInput, match="no logits"):
        scored(load("gemma2-2b", 1, 256))  # its logits go through a cap


# phases

LLAMA = "llama:layers=3,hidden=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=128,seq=32"


def asked(method_name: str, plan: str = "dp2 +bf16", **more: object) -> Alignment:
    answers = AnswerLoad(prompts=8, each=4, prompt=64, lengths=read_lengths("100,192"))
    writes = method(method_name).writes
    words = {"model": "llama3.2-1b", "on": "2xh100", "plan": plan} | ({} if writes else {"batch": 16, "seq": 256})
    return aligned(AlignmentQuestion(read(**words), method_name, answers if writes else None, **more))  # type: ignore[arg-type]


def test_dpo_multiplies_what_pytorch_counts() -> None:
    """Both models on both answers of a pair: the reference without gradients, the policy with."""
    pairs = 3
    with FakeTensorMode():
        policy, reference = modules.build(LLAMA), modules.build(LLAMA)
        sample = modules.example(LLAMA, 2 * pairs)
        with FlopCounterMode(display=False, custom_mapping=MISSING) as counted:
            with torch.no_grad():
                beside = reference(*sample.inputs).log_softmax(-1).mean((1, 2))
            ours = policy(*sample.inputs).log_softmax(-1).mean((1, 2))
            margin = (ours - beside).view(2, pairs)
            (-torch.nn.functional.logsigmoid(margin[0] - margin[1]).mean()).backward()
    graph = load(LLAMA, method("dpo").rows * pairs)
    both = totals(graph)
    assert (
        counted.get_total_flops()
        == totals(evaluated(graph)).forward.matrix + both.forward.matrix + both.backward.matrix
    )


def test_a_step_of_dpo_is_two_predictions() -> None:
    found = asked("dpo")
    train, forward = (
        predicted(read(model="llama3.2-1b", on="2xh100", plan="dp2 +bf16", batch=32, seq=256, forward=one))[1]
        for one in (False, True)
    )
    assert found.way.step_seconds == pytest.approx(train.step_seconds + forward.step_seconds, rel=1e-12)
    reference = forward.memory.by_kind["weights"]
    assert found.way.memory_bytes == pytest.approx(train.memory_bytes + reference, rel=1e-12)
    remembered = asked("dpo", remembered=True)
    assert remembered.way.step_seconds == pytest.approx(train.step_seconds, rel=1e-12)
    assert remembered.way.memory_bytes == train.memory_bytes


def test_adapters_are_their_own_reference() -> None:
    """PEFT turns them off for it: time, and no memory."""
    found = asked("dpo", "dp2 +bf16 +lora8")
    alone = predicted(read(model="llama3.2-1b", on="2xh100", plan="dp2 +bf16 +lora8", batch=32, seq=256))[1]
    assert found.way.memory_bytes == alone.memory_bytes
    assert found.way.step_seconds > alone.step_seconds


def test_ppo_has_grpos_phases_and_more() -> None:
    grpo, full, ppo = asked("grpo"), asked("grpo", reference=True), asked("ppo")
    times = [{one.what: one.seconds for one in found.ways[0].phases} for found in (grpo, full, ppo)]
    assert [found.ways[0].place for found in (grpo, full, ppo)] == ["together"] * 3
    assert times[0].keys() < times[1].keys() < times[2].keys()
    assert times[2]["update"] == times[0]["update"]
    steps = [found.ways[0].step_seconds for found in (grpo, full, ppo)]
    peaks = [found.ways[0].memory_bytes for found in (grpo, full, ppo)]
    assert steps == sorted(steps) and peaks == sorted(peaks)
    assert sum(times[2].values()) == pytest.approx(steps[2])


def test_ways_to_place_rollouts() -> None:
    found = asked("grpo")
    assert [way.place for way in found.ways] == ["together", "host", "apart"]
    together, host, apart = found.ways
    assert host.phases[0].memory_bytes <= together.phases[0].memory_bytes
    assert (apart.training_ranks, apart.rollout_ranks) == (1, 1)
    writing = [one for one in apart.phases if one.what in ("prompts", "answers", "weights to replicas")]
    rest = [one for one in apart.phases if one not in writing]
    sums = [sum(one.seconds for one in some) for some in (writing, rest)]
    assert apart.step_seconds == pytest.approx(max(sums))
    assert found.way.step_seconds == min(way.step_seconds for way in found.ways if way.fits)
    assert found.way.interval[0] < found.way.step_seconds < found.way.interval[1]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_has_sources_and_trains(name: str) -> None:
    one = method(name)
    assert one.references and one.summary
    assert [phase.role for phase in one.phases if phase.doing == "train"][-1] == "policy"


@pytest.mark.parametrize(
    ("name", "words", "what"),
    [
        ("grpo", {"answers": None}, "none are described"),
        ("dpo", {"place": "apart"}, "writes no answers"),
        ("dpo", {"models": (("critic", "gpt2"),)}, "asks no critic"),
        ("grpo", {"updates": 5}, "do not go into 5 updates"),
    ],
)
def test_questions_without_meaning_are_refused(name: str, words: dict[str, object], what: str) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        if "answers" in words:
            aligned(AlignmentQuestion(read(model="llama3.2-1b", on="2xh100", plan="dp2 +bf16"), name))
        else:
            asked(name, **words)
    assert caught.value.fix
