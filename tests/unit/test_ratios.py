"""Ratios of two plans: what pairs teach, what is told apart, and that one large sweep does not decide alone."""

from __future__ import annotations

import math
import random

import pytest

from foretell.cli.coverage_pages import ratio_lines
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.ratios import (
    DIFFERENCES,
    PlanTraits,
    differences,
    indistinguishable,
    order_right,
    ratio_uncertainty,
    ratio_widths,
    told_apart,
)
from foretell.plan.text import parse
from foretell.validation.evaluate import ComparedRun
from foretell.validation.ratios import MeasuredPair, TimedPlan, contenders, measured_pairs, ratio_coverage
from foretell.validation.study import MeasuredRun, row


@pytest.mark.parametrize(
    ("one", "other", "unlike"),
    [
        ("dp8", "dp8", ()),
        ("dp8", "dp8 +m4", ("microbatch",)),
        ("dp8:zero1", "dp8:zero3", ("sharding",)),
        ("dp16", "dp4:zero3,shard4", ("sharding",)),
        ("dp8", "dp8 +recompute:block", ("recompute",)),
        ("dp8 +bf16", "dp8 +fp8", ("policies",)),
        ("pp4:1f1b dp8 +m16", "pp4:interleaved,v2 dp8 +m16", ("mesh",)),
        ("dp8 tp8", "dp8 tp8:sp", ("mesh",)),
        ("dp8 tp2", "dp4 tp4", ("microbatch", "mesh")),
        ("dp8 tp2 +m2", "dp4 tp4 +m4", ("mesh",)),  # micro-batches are of one size
        ("dp8:zero1 tp2 +m2", "dp4:zero1 tp4 +m4", ("mesh",)),
        ("dp8", "tp8 +m8", ("mesh",)),  # nothing is in shares in either
        ("dp2 filter4", "dp2 channel4", ("mesh", "strategy")),
    ],
)
def test_what_two_plans_differ_in(one: str, other: str, unlike: tuple[str, ...]) -> None:
    assert differences(parse(one), parse(other)) == (("always", *unlike) if unlike else ())


def test_every_trait_is_a_difference_that_was_learnt() -> None:
    learnt = ratio_widths()
    assert tuple(DIFFERENCES) == ("always", *PlanTraits._fields)
    assert list(learnt.ratio.widths) == list(learnt.evidence) == list(DIFFERENCES)
    alone = {name for name, known in learnt.evidence.items() if known.sources < 2}
    assert alone == set()
    assert learnt.ratio.runs > 900 and learnt.ratio.sources >= 12


def test_plans_of_one_speed_are_not_told_apart_and_those_of_half_the_speed_are() -> None:
    fast = Candidate.of(parse("dp8:zero3"), 1.0, 1e9)
    assert indistinguishable(fast, Candidate.of(parse("dp8"), 1.02, 1e9))
    assert told_apart(fast, Candidate.of(parse("dp8"), 2.0, 1e9))
    width = ratio_uncertainty(fast.value, parse("dp8")).width
    assert indistinguishable(fast, Candidate.of(parse("dp8"), math.exp(0.999 * width), 1e9))
    assert told_apart(fast, Candidate.of(parse("dp8"), math.exp(1.001 * width), 1e9))


def _pairs(seed: int, spread: dict[str, float], sources: int = 10, each: int = 80) -> list[MeasuredPair]:
    """Pairs whose ratios are off by normal errors, wider for each difference."""
    chance = random.Random(seed)
    here = parse("dp8")
    found: list[MeasuredPair] = []
    for source in range(sources):
        for sweep in range(each):
            unlike = tuple(name for name in DIFFERENCES if name == "always" or chance.random() < 0.5)
            wide = sum(spread.get(name, 0.0) for name in unlike) / 1.645  # nine in ten within the sum
            one, other = TimedPlan(here, 1.0, 1.0), TimedPlan(here, 1.04, 1.04 * math.exp(chance.gauss(0.0, wide)))
            found.append(MeasuredPair(f"s{source}", f"s{source} {sweep}", one, other, unlike, 1.0))
    return found


def test_widths_of_ratios_are_found_again() -> None:
    true = {"always": 0.05, "microbatch": 0.1, "mesh": 0.2}
    found = ratio_coverage(_pairs(1, true))
    learnt = found.widths.ratio
    for name in DIFFERENCES:
        assert learnt.stretch * learnt.widths[name] == pytest.approx(true.get(name, 0.0), abs=0.04)
    assert 0.87 <= found.inside <= 0.93


def test_a_source_of_its_own_kind_does_not_hide_behind_its_own_pairs() -> None:
    """One source is always twice as far off: it lies outside of what the others taught, and widens what ships."""
    pairs = _pairs(2, {"always": 0.1})
    odd = [pair._replace(other=pair.other._replace(measured=2.0)) if pair.source == "s0" else pair for pair in pairs]
    found, before = ratio_coverage(odd), ratio_coverage(pairs)
    assert found.sources["s0"].inside == 0 < 0.8 < before.sources["s0"].inside
    assert found.sources["s0"].factor == pytest.approx(before.sources["s0"].factor)
    assert found.widths.ratio.widths["always"] > before.widths.ratio.widths["always"]


def test_the_order_of_pairs_is_counted_by_how_far_apart_they_are_predicted() -> None:
    found = ratio_coverage(_pairs(3, {"always": 0.05}))
    (only,) = found.widths.order  # all are predicted 4 % apart
    assert only.above < 0.04 < only.up_to
    assert only.pairs == 800 and 0.9 < only.right / only.pairs < 1


def test_how_often_the_order_was_right_is_read_by_the_ratio() -> None:
    fast = Candidate.of(parse("dp8:zero3"), 1.0, 1e9)
    near, far = (order_right(fast, Candidate.of(parse("dp8"), seconds, 1e9)) for seconds in (1.02, 1.2))
    assert near is not None and far is not None
    assert near.right / near.pairs < far.right / far.pairs
    assert order_right(fast, Candidate.of(parse("dp8"), 3.0, 1e9)) is None
    assert order_right(fast, fast) is None


def test_a_page_tells_ratios_in_eighty_columns() -> None:
    lines = "\n".join(ratio_lines(ratio_coverage(_pairs(4, {"always": 0.05})))).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("microbatch") for line in lines)


def test_a_large_sweep_counts_as_its_plans_and_not_as_its_pairs() -> None:
    runs = [_run(f"dp{ranks} tp{64 // ranks}", 1.0 + ranks / 1000) for ranks in (1, 2, 4, 8, 16, 32, 64)]
    pairs = list(measured_pairs("vtrain", "vtrain_multi", runs))
    assert len(pairs) == 21
    assert math.fsum(pair.worth for pair in pairs) == pytest.approx(6)


def test_only_contenders_are_paired_and_faults_are_left_out() -> None:
    plans = {"dp8": 1.0, "dp4 tp2": 1.2, "tp8": 1.3}
    runs = [_run(plan, seconds) for plan, seconds in plans.items()]
    assert [str(one.plan) for one in contenders(runs)] == ["dp8", "dp4 tp2"]
    ill = [_run("dp2 tp4", 1.01, ("cluster fault",))]
    pairs = list(measured_pairs("vtrain", "vtrain_multi", runs + ill))
    assert [(str(pair.one.plan), str(pair.other.plan)) for pair in pairs] == [("dp8", "dp4 tp2")]


def test_two_runs_of_one_plan_are_no_pair() -> None:
    assert list(measured_pairs("vtrain", "vtrain_multi", [_run("dp8", 1.0), _run("dp8", 1.0)])) == []


class _Predicted:
    """A prediction with a time."""

    memory, fits, interval = None, True, (0.0, 1.0)

    def __init__(self, seconds: float) -> None:
        self.step_seconds = seconds


def _run(plan: str, predicted: float, subsets: tuple[str, ...] = ()) -> ComparedRun:
    own: MeasuredRun = row(
        plan, "lenet5", plan, "8xv100-16", batch=64, trainer="pytorch", step_seconds=1.0, subsets=subsets
    )
    return ComparedRun(own, _Predicted(predicted), "")  # type: ignore[arg-type]
