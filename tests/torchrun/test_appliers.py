"""The two laws of everything that runs: it trains exactly as one process does, and it says what the program says.

A run is made in double precision; its losses and weights are those of one process up to rounding. The collectives
that it was seen to make are those of the program, in single precision, which is half the bytes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from foretell.program.action import Communicate
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment, Collective, Report
from foretell.runtime.expected import expected, whenever
from foretell.runtime.launch import Ranks

TOLERANCE = 1e-10
LLAMA = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=40,seq=8"
DEEP = "llama:layers=4,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=40,seq=8"
TIED = "gpt:layers=4,hidden=16,heads=4,ffn=24,vocab=40,seq=8,tied=true,dropout=0"
LENET = "lenet:image=29"
CNN = f"{Path(__file__).parent / 'small_cnn.py'}:single"
NORMED = CNN.replace("single", "normed_single")

CASES = (
    (LLAMA, "dp2"),
    (LLAMA, "dp2:zero3 +m2"),
    (LLAMA, "tp2:sp"),
    (LLAMA, "pp2:1f1b +m2"),
    (LLAMA, "dp4 +m2"),
    (LLAMA, "dp2 +recompute:full"),
    (LLAMA, "dp4:zero3 +recompute:block"),
    (LLAMA, "dp2:zero3,shard2"),
    (LLAMA, "tp2 +m2"),
    (f"{LLAMA},qk_norm=true,qkv_bias=true", "tp2:sp +m2"),
    (LLAMA, "dp2 tp2:sp"),
    (LLAMA, "dp2:zero3 tp2:sp +m2"),
    (DEEP, "pp2:gpipe +m4"),
    (DEEP, "pp2:interleaved +m4"),
    (DEEP, "pp4:1f1b +m4"),
    (TIED, "tp2:sp +m2"),
    (TIED, "dp2:zero3 tp2"),
    (TIED, "pp2:1f1b dp2 +m2"),
    (TIED, "pp4:gpipe +m4"),
    (DEEP, "pp2:zb-v +m4"),
    (DEEP, "pp2:dualpipe-v +m4"),
    (DEEP, "pp2:1f1b dp2 +m2"),
    (DEEP, "pp2:interleaved dp2 +m2"),
    (DEEP, "pp2:1f1b tp2:sp +m2"),
    (CNN, "dp2 +m2"),
    (CNN, "dp4:zero3"),
    (CNN, "pp2:1f1b +m2"),
    (CNN, "pp2:gpipe dp2 +m2"),
    (CNN, "dp2 +recompute:block"),
    (CNN, "filter2"),
    (CNN, "dp2 filter2 +m2"),
    (CNN, "pp2:1f1b filter2 +m2"),
    (CNN, "channel2"),
    (LENET, "dp2 channel2"),
    (LENET, "dp2:zero3 filter2"),
    (NORMED, "dp2 +syncbn"),
    (LLAMA, "pp2:gpipe dp2 tp2 +m2"),
)


def _assignment(model: str, plan: str) -> Assignment:
    return Assignment(model=model, plan=plan, batch=8, steps=1, weights=True, rate=0.01)


def _double(model: str) -> str:
    return model.replace("single", "double") if model in (CNN, NORMED) else f"{model},dtype=fp64"


class Trained(msgspec.Struct, frozen=True):
    """What came of a run: the mean losses of its steps, its whole weights, and each rank's report."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    reports: tuple[Report, ...]


def _trained(ranks: Ranks, model: str, plan: str) -> Trained:
    reports = ranks.run(_assignment(_double(model), plan), seconds=300)
    weights: dict[str, torch.Tensor] = {}
    for report in reports:
        weights |= torch.load(ranks.folder / f"weights-{report.rank}.pt")
    seen = [report.losses for report in reports if report.losses]
    return Trained([sum(losses) / len(losses) for losses in zip(*seen, strict=True)], weights, reports)


@functools.cache
def _alone(ranks: Ranks, model: str, plan: str = "dp1") -> Trained:
    """One process; with as many micro-batches as others have, batch norm sees what it sees there."""
    return _trained(ranks, model, plan)


def _assert_same_values(one: Trained, other: Trained) -> None:
    assert len(one.losses) == len(other.losses) == 4
    assert one.losses == pytest.approx(other.losses, abs=TOLERANCE, rel=0)
    assert one.losses[0] != one.losses[-1]  # something was learnt
    assert one.weights.keys() == other.weights.keys()
    for name, weight in one.weights.items():
        torch.testing.assert_close(weight, other.weights[name], atol=TOLERANCE, rtol=0, msg=name)


def _half(found: Sequence[Collective]) -> list[Collective]:
    return [msgspec.structs.replace(one, payload=one.payload // 2) for one in whenever(found)]


def _assert_same_collectives(model: str, plan: str, reports: tuple[Report, ...]) -> None:
    program = lower(_assignment(model, plan).setting())
    for report in reports:
        assert _half(report.collectives) == expected(program, report.place.get("pp", 0)), f"rank {report.rank}"


def _name(case: tuple[str, str]) -> str:
    model, plan = case
    return f"{Path(model).name.partition(',')[0]} {plan}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_it_trains_and_talks_as_it_should(ranks: Ranks, case: tuple[str, str]) -> None:
    model, plan = case
    found = _trained(ranks, model, plan)
    _assert_same_values(found, _alone(ranks, model))
    _assert_same_collectives(model, plan, found.reports)


LOCAL_NORMS = ((NORMED, "dp2"), (NORMED, "pp2:1f1b +m2"))


@pytest.mark.parametrize("case", LOCAL_NORMS, ids=_name)
def test_batch_norm_sees_the_samples_of_its_rank_and_pass(ranks: Ranks, case: tuple[str, str]) -> None:
    model, plan = case
    found = _trained(ranks, model, plan)
    _assert_same_values(found, _alone(ranks, model, "dp1 +m2"))
    with pytest.raises(AssertionError):
        _assert_same_values(found, _alone(ranks, model))


IN_SHARES = (
    (CNN, "spatial2"),
    (CNN, "dp2 spatial2 +m2"),
    (CNN, "spatial3"),
    (LENET, "spatial2"),
    (NORMED, "dp2 spatial2 +syncbn"),
)


@pytest.mark.parametrize("case", IN_SHARES, ids=_name)
def test_images_in_shares(ranks: Ranks, case: tuple[str, str]) -> None:
    """Sums are those of the program; so are the rows that travel forward, where two ranks divide padded layers.

    Backward a run sends the gradients of the rows that it fetched. The program sends those of the outputs: as many
    rows, but of other sizes where a layer strides or has more filters than channels.
    """
    model, plan = case
    found = _trained(ranks, model, plan)
    _assert_same_values(found, _alone(ranks, model))
    program = lower(_assignment(model, plan).setting())
    said = [one for one in expected(program) if one.kind != "exchange"]
    for report in found.reports:
        assert [one for one in _half(report.collectives) if one.kind not in ("send", "receive")] == said
    if model == CNN and "spatial2" in plan:  # shares of odd sizes begin elsewhere: others fetch a row more, or less
        rows = {message.payload for message, _ in program.communications(program.kinds[0]) if _goes_forward(message)}
        ran = {one.payload // 2 for report in found.reports for one in report.collectives if _went_forward(one)}
        assert ran == rows


def _goes_forward(message: Communicate) -> bool:
    return message.kind == "exchange" and message.what == "activations"


def _went_forward(one: Collective) -> bool:
    return one.kind in ("send", "receive") and one.phase == "forward"


# Where torch does something else than the program says: both sides are pinned, with the reason. -----------------


def _bytes(found: Sequence[Collective]) -> dict[tuple[str, tuple[str, ...]], int]:
    sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for one in found:
        sums[one.kind, one.axes] += one.payload * one.count
    return dict(sums)


def _counts(found: Sequence[Collective]) -> Counter[tuple[str, tuple[str, ...], int]]:
    return Counter({(one.kind, one.axes, one.payload): one.count for one in found})


@pytest.mark.parametrize("plan", ["dp2:zero1", "pp2:1f1b dp2:zero1 +m2"])
def test_torch_sums_for_everybody_under_zero1(ranks: Ranks, plan: str) -> None:
    """DistributedDataParallel all-reduces; ZeroRedundancyOptimizer then sends each weight from the rank that has it.

    The program says what ZeRO's paper says: a reduce-scatter, and one all-gather.
    """
    found = _trained(ranks, DEEP, plan)
    _assert_same_values(found, _alone(ranks, DEEP))
    said = _bytes(expected(lower(_assignment(DEEP, plan).setting())))
    ran = _bytes(_half(found.reports[0].collectives))
    along = ("dp",)
    weights = said.pop(("reduce-scatter", along))
    assert said.pop(("all-gather", along)) == weights // 2
    assert ran.pop(("all-reduce", along)) == weights
    assert ran.pop(("broadcast", along)) == weights
    assert ran == said


@pytest.mark.parametrize("plan", ["dp2:zero2", "dp2:zero2 +m2"])
def test_torch_gathers_and_sums_layer_by_layer_under_zero2(ranks: Ranks, plan: str) -> None:
    """FSDP2 gathers each layer in the forward pass; the program gathers all weights at once after the update."""
    found = _trained(ranks, LLAMA, plan)
    _assert_same_values(found, _alone(ranks, LLAMA))
    said, ran = expected(lower(_assignment(LLAMA, plan).setting())), _half(found.reports[0].collectives)
    assert _bytes(ran) == _bytes(said)
    assert sum(one.count for one in ran) == 3 * sum(one.count for one in said)  # two layers, and what is in none


@pytest.mark.parametrize("plan", ["tp2 +recompute:block", "dp2 tp2:sp +recompute:block"])
def test_torch_does_not_finish_what_it_recomputes(ranks: Ranks, plan: str) -> None:
    """`torch.utils.checkpoint` stops when it has the last tensor that was saved: before a layer's last product.

    The program runs a layer again to its end, with the sum over the tensor ranks there.
    """
    found = _trained(ranks, LLAMA, plan)
    _assert_same_values(found, _alone(ranks, LLAMA))
    said = _counts(expected(lower(_assignment(LLAMA, plan).setting())))
    ran = _counts(_half(found.reports[0].collectives))
    (missing,) = (said - ran).items()
    assert ran - said == Counter()
    (kind, axes, _), count = missing
    assert (kind, axes, count) == ("reduce-scatter" if ":sp" in plan else "all-reduce", ("tp",), 2)  # one a layer


def test_torch_keeps_weights_from_the_first_backward_pass_of_a_pipeline(ranks: Ranks) -> None:
    """The pipeline tells FSDP2 not to let go of weights after a backward pass; the program gathers them for each."""
    plan = "pp2:1f1b dp2:zero3 +m2"
    found = _trained(ranks, DEEP, plan)
    _assert_same_values(found, _alone(ranks, DEEP))
    said = _counts(expected(lower(_assignment(DEEP, plan).setting())))
    ran = _counts(_half(found.reports[0].collectives))
    assert ran - said == Counter()
    assert {kind for kind, _, _ in said - ran} == {"all-gather"}
    assert sorted((said - ran).values()) == [1, 2]  # of the table once, and of both layers in the second pass
