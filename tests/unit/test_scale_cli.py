"""foretell scale: the six strategies of the oracle's paper, over numbers of GPUs, strong and weak."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

import foretell as package
from foretell.errors import BadInput
from foretell.oracle.planning import answered
from foretell.oracle.request import read
from foretell.oracle.scale import ScalingCrossover, ScalingLine, ScalingPoint, crossings, line_of
from foretell.plan import members
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse

ALWAYS = ("scale",)

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"
PAPER = {"dp", "spatial", "filter", "channel", "pp", "dp+spatial", "dp+filter"}


@pytest.mark.parametrize(("model", "batch"), [("resnet50", 32), ("cosmoflow128", 8)])
def test_the_papers_strategies_come_out(model: str, batch: int) -> None:
    words = ["dp", "spatial", "filter", "channel", "pp"]
    found = package.scale(model, "abci", [4, 8], batch, only=words)
    assert {line.name for line in found.lines} >= PAPER
    for line in found.lines:
        for point in line.points:
            assert line_of(parse(point.plan)) == line.name and parse(point.plan).ranks == point.ranks
            step = package.predict(model, f"abci:{point.ranks}", point.plan, batch=batch)
            assert (step.step_seconds, step.memory_bytes) == (point.step_seconds, point.memory_bytes)


def test_the_best_plan_is_that_of_the_search_and_no_line_is_ahead_of_it() -> None:
    words = ("dp", "tp", "pp", "recompute")
    found = package.scale(TINY, "h100", [2, 4, 8], 16, only=list(words))
    assert [point.ranks for point in found.best.points] == [2, 4, 8]
    for point in found.best.points:
        searched = answered(read(model=TINY, on=f"{point.ranks}xh100", batch=16, only=words)).found.best
        assert searched is not None and (point.plan, point.step_seconds) == (searched.plan, searched.step_seconds)
        rates = [one.samples_per_second for line in found.lines for one in line.points if one.ranks == point.ranks]
        assert rates and point.samples_per_second >= max(rates)


def test_a_large_model_scales_where_no_single_strategy_fits(foretell: Any) -> None:
    words = ("llama3-70b", "--on", "h100", "--gpus", "32,64", "--batch", "64", "--only", "dp,tp,pp,recompute")
    asked = (*words, "--trainer", "megatron-lm-2023", "--calibration", "none")  # which has no ZeRO-3
    answer = json.loads(foretell(*asked, "--json").out)
    plans = {point["ranks"]: parse(point["plan"]) for point in answer["best"]["points"]}
    assert set(plans) == {32, 64} and all(len(plan.axes) > 1 for plan in plans.values())
    assert {line["name"] for line in answer["lines"] if not line["points"]} >= {"dp", "dp:zero1"}
    page = foretell(*asked).out
    assert page.count("does not fit") == 1 and "does not fit in memory: dp, dp:zero1" in page
    assert len(page.splitlines()) < 40


def test_weak_scaling_has_the_best_plan_by_samples() -> None:
    found = package.scale(TINY, "h100", [2, 4], batch_per_rank=2, only=["dp", "tp"])
    for point in found.best.points:
        others = [one.samples_per_second for line in found.lines for one in line.points if one.ranks == point.ranks]
        assert point.samples_per_second == max(others) and point.batch >= 2


def test_limits_are_those_of_the_model() -> None:
    found = package.scale("cosmoflow128", "abci", [4, 8, 16], 8, only=["filter", "pp"])
    assert found.ends["filter"].ranks == 8 and found.ends["filter"].limit == "filter limit"
    assert found.ends["filter"].why == "filter8, but head has 4 filters only"
    assert found.ends["pp"].limit == "no empty stage" and "layers" in found.ends["pp"].why


def test_weak_scaling_grows_the_batch_with_the_ranks_that_split_it() -> None:
    found = package.scale(TINY, "h100", [1, 2, 4], batch_per_rank=2, only=["dp", "tp"])
    batches = {line.name: [point.batch for point in line.points] for line in found.lines}
    assert batches["dp"] == [2, 4, 8]
    assert batches["tp"] == [2, 2]
    assert batches["dp+tp"] == [4]
    assert found.weak and found.base_ranks == 1


class Rows(Data, frozen=True, kw_only=True, tag="rows"):
    """Samples among ranks, under another name."""

    word: ClassVar[str] = "rows"
    summary: ClassVar[str] = "every rank takes some of the samples"
    example: ClassVar[str] = "rows2"


def test_a_new_strategy_has_lines_with_no_other_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(members.strategies(), "rows", Rows)
    found = package.scale(TINY, "h100", [2, 4], 8, only=["dp", "rows"])
    points = {line.name: [point.ranks for point in line.points] for line in found.lines}
    assert points["rows"] == [2, 4] and points["dp+rows"] == [4]


def test_efficiency_is_against_the_fewest_ranks() -> None:
    found = package.scale(TINY, "h100", [1, 2, 4], 8, only=["dp", "tp"])
    first = found.lines[0].points[0]
    assert (first.ranks, first.efficiency) == (1, 1.0)
    for line in found.lines:
        for point in line.points:
            assert point.efficiency == pytest.approx(first.step_seconds / (point.ranks * point.step_seconds))


def test_lines_cross_where_the_faster_one_changes() -> None:
    found = package.scale("gpt2", "h100", [2, 4, 8], 16, only=["dp", "cp", "tp"])
    rate = {(line.name, point.ranks): point.samples_per_second for line in found.lines for point in line.points}
    assert found.crossings
    for one in found.crossings:
        assert rate[one.first, one.low] > rate[one.second, one.low]
        assert rate[one.first, one.high] < rate[one.second, one.high]
    for ranks, name in found.fastest.items():
        assert rate[name, ranks] == max(value for (_, count), value in rate.items() if count == ranks)


def test_memory_is_a_limit_too(foretell: Any) -> None:
    options = (TINY, "--on", "h100", "--gpus", "1..4", "--batch", "8", "--only", "dp,tp", "--max-memory")
    size = package.predict(TINY, "2xh100", "dp2:zero3 +m4 +bf16", batch=8).memory_bytes
    answer = json.loads(foretell(*options, f"{size + 1:.0f} B", "--json").out)
    lines = {line["name"]: line for line in answer["lines"]}
    assert [gap["limit"] for gap in lines["dp"]["gaps"]] == ["memory"] * len(lines["dp"]["gaps"]) != []
    assert lines["dp:zero3"]["points"]
    ran = foretell(*options, "1 MB")
    assert ran.code == 2 and "no plan fits" in ran.err


def test_the_page(foretell: Any) -> None:
    ran = foretell(TINY, "--on", "h100", "--gpus", "1..8", "--batch", "8", "--only", "dp,tp,spatial")
    assert ran.code == 0 and not ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    for word in (
        "strong scaling",
        "dp:zero3",
        "dp+tp",
        "heads divide",
        "not possible for this model or batch:",
    ):
        assert word in ran.out
    assert "weak scaling" in foretell(TINY, "--on", "h100", "--gpus", "2", "--batch-per-rank", "1", "--only", "dp").out


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus", "1..4"),
        ("--batch", "8"),
        ("--gpus", "1..4", "--batch", "8", "--batch-per-rank", "1"),
        ("--gpus", "4..1", "--batch", "8"),
        ("--gpus", "1..4", "--batch-per-rank", "0"),
        ("--gpus", "1..4", "--batch", "8", "--only", "nothing"),
        ("--gpus", "1..4", "--batch", "8", "--fix", "tp2"),
    ],
)
def test_what_is_missing_is_named(foretell: Any, options: tuple[str, ...]) -> None:
    ran = foretell(TINY, "--on", "h100", *options)
    assert ran.code == 2 and ran.err.startswith("foretell: ")


def test_python_refuses_two_batches() -> None:
    with pytest.raises(BadInput):
        package.scale(TINY, "h100", [2], 8, batch_per_rank=1)


def _line(name: str, rates: list[float]) -> ScalingLine:
    points = tuple(
        ScalingPoint(
            ranks=ranks, batch=1, plan="", step_seconds=1 / rate, samples_per_second=rate, efficiency=1, memory_bytes=0
        )
        for ranks, rate in zip((1, 2, 4, 8), rates, strict=True)
    )
    return ScalingLine(name=name, points=points, gaps=())


def test_lines_that_tie_do_not_cross() -> None:
    first, second = _line("first", [1.0, 2.0, 4.0, 8.0]), _line("second", [1.001, 1.999, 4.003, 7.99])
    assert list(crossings([first, second])) == []
    ahead = _line("ahead", [1.1, 2.002, 3.999, 7.0])  # ties on 2 and 4: the order changes between 1 and 8
    assert list(crossings([first, ahead])) == [ScalingCrossover("ahead", "first", 1, 8)]
    assert list(crossings([first, _line("behind", [0.9, 2.001, 3.9, 7.0])])) == []


def test_stages_are_told_to_be_the_trainers(foretell: Any) -> None:
    piped = (TINY, "--on", "h100", "--gpus", "2", "--batch", "8", "--only", "dp,pp")
    assert "stages are as the trainer cuts them" in " ".join(foretell(*piped).err.split())
    assert json.loads(foretell(*piped, "--json").out)["notes"]
    assert not json.loads(foretell(*piped, "--trainer", "nanotron", "--json").out)["notes"]  # it cuts them anyway


def test_micro_batches_that_are_fixed_count_where_a_line_ends() -> None:
    found = package.scale(TINY, "8xh100", [2, 4, 8], batch=16, only=["dp"], fix="+m4")
    (line,) = [one for one in found.lines if one.name == "dp"]
    assert [one.ranks for one in line.points] == [2, 4]
    (gap,) = line.gaps
    assert (gap.ranks, gap.limit) == (8, "batch divides")
    assert gap.why == "a batch of 16 is not a multiple of 8 data-parallel ranks x 4 micro-batches = 32"
