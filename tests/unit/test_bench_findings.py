"""Reasons and findings: each can be told from rows, each can hold and each can fail."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretell.bench.findings import FAILS, FINDINGS, HOLDS, UNKNOWN, check
from foretell.bench.group import DATA, HYBRID, INTRA, OTHER, PIPELINE, SHARDED, family, groups
from foretell.bench.reasons import WORTH, imbalance, reasons, sentence
from foretell.bench.row import FAILED, BenchRow, LearningPoint

GIGA = 10**9


def row(engine: str, ranks: int, seconds: float, plan: str = "", **more: object) -> BenchRow:
    """An epoch of so many seconds: one step of it all."""
    start: dict[str, object] = {
        "engine": engine, "pair": "image", "ranks": ranks, "seed": 0, "batch_rule": "", "device": "lassen",
        "plan": plan or f"dp{ranks}", "batch": 64, "epoch_samples": 64, "step_seconds": seconds,
    }  # fmt: skip
    return BenchRow(**{**start, **more})  # type: ignore[arg-type]


def line(engine: str, plan: str, seconds: dict[int, float], memory: dict[int, int] | None = None) -> list[BenchRow]:
    held = memory or {}
    return [
        row(engine, ranks, epoch, plan.format(ranks), memory_by_rank=(held[ranks],) if ranks in held else ())
        for ranks, epoch in seconds.items()
    ]


def verdicts(rows: list[BenchRow]) -> dict[str, str]:
    return {one.finding.name: one.verdict.status for one in check(rows)}


DDP = line("ddp", "dp{}", {1: 100, 2: 51, 4: 26, 8: 15, 16: 8}, dict.fromkeys((1, 2, 4, 8, 16), 20 * GIGA))
ZERO = line("zero", "dp{}:zero2", {1: 110, 2: 56, 4: 29, 8: 17, 16: 9}, {1: 20 * GIGA, 2: 14 * GIGA, 4: 11 * GIGA})
MEGATRON = line("megatron-intra", "tp{}", {1: 40, 2: 29, 4: 27, 8: 25, 16: 24}, {1: 13, 2: 11, 4: 12, 8: 17})
GPIPE = line("gpipe", "pp{}:gpipe +m64", {1: 200, 2: 150, 4: 120}, {1: 20 * GIGA, 2: 9 * GIGA, 4: 8 * GIGA})


def learnt(engine: str, ranks: int, plan: str, *metrics: float, synchronous: bool = True) -> BenchRow:
    """A look after every second and every epoch."""
    curve = tuple(
        LearningPoint(step=at, epoch=at, seconds=at, loss=0.0, metric=metric)
        for at, metric in enumerate(metrics, start=1)
    )
    return row(engine, ranks, 1.0, plan, curve=curve, synchronous=synchronous)


DATA_LEARNT = learnt("ddp", 2, "dp2", 0.4, 0.6)

CASES = {
    "stale": (
        [DATA_LEARNT, learnt("stash", 2, "pp2:stash +m4", 0.1, 0.2, 0.3, synchronous=False)],
        [DATA_LEARNT, learnt("stash", 2, "pp2:stash +m4", 0.7, synchronous=False)],
    ),
    "large-batch": (
        [learnt("ddp", 1, "dp1", 0.5, 0.7), DATA_LEARNT],
        [learnt("ddp", 1, "dp1", 0.3, 0.5), DATA_LEARNT],
    ),
    "data-scales": (DDP, line("ddp", "dp{}", {1: 100, 2: 90, 4: 95})),
    "pipelines-slow": (DDP + GPIPE, DDP + line("gpipe", "pp{}:gpipe +m8", {2: 20})),
    "intra-stops": (MEGATRON, line("tp", "tp{}", {1: 40, 4: 10, 16: 3})),
    "intra-waits": (
        [row("tp", 16, 10, "tp16", phases={"forward": 4.0, "exposed.tp": 6.0})],
        [row("tp", 16, 10, "tp16", phases={"forward": 8.0, "exposed.tp": 2.0})],
    ),
    "intra-memory": (MEGATRON, line("tp", "tp{}", {1: 4, 2: 3, 4: 2}, {1: 13, 2: 12, 4: 11})),
    "fused-kernels": (DDP + MEGATRON, DDP + line("megatron-intra", "tp{}", {1: 90})),
    "past-the-node": (DDP, line("ddp", "dp{}", {1: 100, 4: 30, 8: 12})),
    "backward": (
        [row("ddp", 1, 3, phases={"forward": 1.0, "backward": 2.0})],
        [row("ddp", 1, 3, phases={"forward": 2.0, "backward": 1.0})],
    ),
    "pipelines-save": (GPIPE, line("gpipe", "pp{}:gpipe +m8", {1: 9, 2: 8}, {1: 20 * GIGA, 2: 15 * GIGA})),
    "advice-data": (DDP + GPIPE, DDP + line("tp", "tp{}", {4: 1})),
    "advice-sharded": (DDP + ZERO, DDP + line("zero", "dp{}:zero1", {2: 50, 4: 30}, {2: 10 * GIGA, 4: 11 * GIGA})),
    "advice-split": (DDP + GPIPE, DDP + line("gpipe", "pp{}:gpipe +m8", {2: 90}, {2: 30 * GIGA})),
}


def test_every_finding_has_rows_in_which_it_holds_and_rows_in_which_it_fails() -> None:
    assert set(CASES) == {finding.name for finding in FINDINGS}


@pytest.mark.parametrize("name", CASES)
def test_a_finding_holds_and_fails(name: str) -> None:
    right, wrong = CASES[name]
    assert verdicts(right)[name] == HOLDS
    assert verdicts(wrong)[name] == FAILS


@pytest.mark.parametrize("name", CASES)
def test_evidence_is_that_of_the_rows(name: str) -> None:
    """It has figures, and other rows have others."""
    right, wrong = (
        next(one.verdict.evidence for one in check(rows) if one.finding.name == name) for rows in CASES[name]
    )
    assert all(any(map(str.isdigit, told)) for told in (right, wrong)) and right != wrong


def test_of_one_seed_nothing_is_said_about_learning() -> None:
    rows = [msgspec.structs.replace(one, created="2026-01-01") for one in CASES["stale"][0]]
    again = [msgspec.structs.replace(one, seed=1) for one in rows]
    assert "stale" not in verdicts(rows) and verdicts(rows + again)["stale"] == HOLDS


def test_weights_that_are_averaged_are_no_data_parallelism_of_the_survey() -> None:
    assert family(row("hivemind", 2, 1.0, "dp2", synchronous=False)) == OTHER
    assert family(row("stash", 2, 1.0, "pp2:stash +m4", synchronous=False)) == PIPELINE


def test_passes_that_take_longer_than_those_of_the_reference_are_a_reason() -> None:
    """Of both ranks together, as a share of what they had: 1 s more of 2 x 2 s."""
    plain = row(
        "ddp", 2, 1.0, phases_by_rank={"forward": (0.25, 0.25), "backward": (0.5, 0.5), "optimizer": (0.1, 0.1)}
    )
    slow = row("pipe", 2, 2.0, phases_by_rank={"forward": (1.0, 0.5), "backward": (0.5, 0.5), "optimizer": (0.1, 0.1)})
    found = {one.name: one.share for one in reasons(slow, plain)}
    assert found["longer passes"] == pytest.approx(0.25) and "longer updates" not in found
    assert "longer passes" not in {one.name for one in (*reasons(slow), *reasons(plain, plain))}


@given(st.floats(0.1, 1.0), st.floats(0.1, 3.0), st.floats(0.0, 2.0))
def test_what_ranks_compute_longer_than_one_alone_is_a_reason(work: float, slower: float, more: float) -> None:
    """Of every engine: that of the reference, and what it computes longer than that is a reason of its own."""
    alone = row("ddp", 1, work, phases_by_rank={"forward": (work,)}, batch=32)
    plain = row("ddp", 2, 5.0, phases_by_rank={"forward": (slower * work, slower * work)}, batch=64)
    other = row("zero1", 2, 10.0, phases_by_rank={"forward": (slower * work + more, slower * work)}, batch=64)
    for one, step in ((plain, 5.0), (other, 10.0)):
        told = {reason.name: reason.share for reason in reasons(one, plain, alone)}
        share = (slower - 1) * work / step
        assume(abs(share - WORTH) > 1e-9)  # where the last digit decides
        assert told.get("slower together", 0.0) == pytest.approx(share if share >= WORTH else 0.0)
    quick = row("ray", 2, 1.0, phases_by_rank={"forward": (work, work)}, batch=64)
    untold = (reasons(alone, alone, alone), reasons(plain, plain), reasons(quick, plain, alone))
    assert not any(one.name == "slower together" for found in untold for one in found)


def test_what_is_not_there_is_not_asked() -> None:
    assert check([]) == ()
    assert verdicts(line("ddp", "dp{}", {1: 100})) == {}
    failed = [row("ddp", 4, 0, status=FAILED, reason="no memory")]
    assert check(failed) == () and groups(failed) == ()
    later = line("tp", "tp{}", {2: 29, 4: 27, 8: 25}, {2: 13, 4: 11, 8: 12})
    assert "intra-memory" not in verdicts(later)  # whether it falls with the first ranks is seen from one rank only


def test_findings_about_nodes_need_a_cluster_with_nodes() -> None:
    here = [row(one.engine, one.ranks, one.step_seconds, one.plan, device="cpu") for one in DDP + MEGATRON]
    assert {"past-the-node", "intra-stops"}.isdisjoint(verdicts(here))


@pytest.mark.parametrize(
    ("plan", "kind"),
    [("dp4", DATA), ("dp4:zero3", SHARDED), ("tp4", INTRA), ("spatial4", INTRA), ("pp4:1f1b +m8", PIPELINE),
     ("pp2:1f1b dp2 +m8", HYBRID)],
)  # fmt: skip
def test_the_family_is_read_off_the_plan(plan: str, kind: str) -> None:
    assert family(row("any", 4, 1.0, plan)) == kind


def test_of_several_seeds_the_one_in_the_middle_is_compared() -> None:
    rows = [row("ddp", 2, seconds, seed=seed) for seed, seconds in enumerate((3.0, 1.0, 2.0))]
    (group,) = groups(rows)
    assert group.lines[0].rows[2].step_seconds == 2.0
    assert len(group.lines[0].seeds[2]) == 3


def test_without_two_numbers_of_ranks_nobody_can_tell_whether_sharding_saves_with_each() -> None:
    def held(ranks: int, share: float) -> list[BenchRow]:
        memory = {ranks: round(20 * GIGA * share)}
        return DDP + line("zero", "dp{}:zero2", {ranks: 50.0}, memory)

    assert verdicts(held(2, 0.7))["advice-sharded"] == UNKNOWN
    assert verdicts(held(2, 1.2))["advice-sharded"] == FAILS


# reasons

PARTS = st.dictionaries(
    st.sampled_from(["forward", "backward", "recompute", "bubble", "host", "input", "exposed.dp", "exposed.tp"]),
    st.floats(0.001, 10.0),
    min_size=1,
)


@given(PARTS)
def test_reasons_are_shares_of_the_step_the_largest_first(parts: dict[str, float]) -> None:
    found = reasons(row("ddp", 2, sum(parts.values()), phases=parts))
    told = [one.share for one in found]
    assert all(WORTH <= share <= 1 + 1e-9 for share in told)
    assert all(first >= second for first, second in pairwise(told))
    assert sum(told) <= 1 + 1e-9  # without imbalance no part is told twice
    assert ("exposed communication" in [one.name for one in found]) == (
        sum(part for name, part in parts.items() if name.startswith("exposed")) >= WORTH * sum(parts.values())
    )


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8))
def test_imbalance_is_what_the_fullest_rank_has_more_than_the_mean(work: list[float]) -> None:
    step = 2 * max(work)
    one = row("gpipe", len(work), step, phases_by_rank={"forward": tuple(work)})
    assert imbalance(one) == pytest.approx((max(work) - sum(work) / len(work)) / step)
    assert imbalance(row("gpipe", 2, 1.0)) == 0


def test_imbalance_is_no_bubble() -> None:
    one = row("gpipe", 2, 10.0, phases={"forward": 6.0, "bubble": 4.0}, phases_by_rank={"forward": (6.0, 2.0)})
    shares = {reason.name: reason.share for reason in reasons(one)}
    assert shares == {"imbalance": pytest.approx(0.2), "bubble": pytest.approx(0.2)}


@pytest.mark.parametrize(("device", "precision", "told"), [
    ("lassen", "fp32", True), ("cuda", "tf32", True), ("cuda", "amp_bf16", False), ("cpu", "fp32", False),
])  # fmt: skip
def test_missing_mixed_precision_is_told_where_there_is_one(device: str, precision: str, told: bool) -> None:
    one = row("ddp", 1, 1.0, device=device, precision=precision, phases={"forward": 1.0})
    assert ("no mixed precision" in sentence(reasons(one))) == told


def test_a_row_without_figures_has_no_reasons() -> None:
    assert reasons(row("ddp", 1, 0.0, status=FAILED)) == ()
    assert sentence(()) == "nothing worth a word"
