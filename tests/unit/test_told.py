"""What pages tell people: room that is left, ranks that are idle, layouts, absurd numbers, progress, exit codes."""

from __future__ import annotations

import functools
import json
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

import foretell as package
from foretell.cli import progress
from foretell.errors import BadInput
from foretell.oracle import headroom, planning
from foretell.oracle.layouts import layouts, plainer
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.search import SearchResult
from foretell.plan.plan import Plan
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse
from foretell.units import show_bytes, show_count, show_seconds, show_span

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"

# Room that is left. ------------------------------------------------------------------------------------


def filling(low: float, high: float) -> int:
    """A batch of gpt2 on one H100 that fills so much of what a run can use."""
    for batch in range(2, 256, 2):
        step = package.predict("gpt2", "h100", "dp1 +bf16", batch)
        if low < step.memory_bytes / step.usable <= high:
            return batch
    raise AssertionError("no batch fills a device so")


def test_a_winner_that_hardly_fits_is_told_to(foretell: Any) -> None:
    batch = str(filling(headroom.CLOSE, 1.0))
    asked = ("plan", "gpt2", "--on", "1xh100", "--batch", batch, "--without", "microbatches", "--only", "dp,recompute")
    text = " ".join(foretell(*asked).out.split())
    answer = json.loads(foretell(*asked, "--json").out)
    assert text.startswith("recommended dp1 +recompute:") and "the fastest plan that fits with 90 %" in text
    assert f"fastest {answer['fastest']['plan']}" in text and answer["fastest"]["plan"] == "dp1 +bf16"
    assert answer["headroom"] > 0.05 and "close" not in text
    full = json.loads(foretell(*asked, "--headroom", "0", "--json").out)
    assert full["best"] == full["fastest"] == answer["fastest"] and full["headroom"] < 0.05
    alone = " ".join(foretell(*asked[:-1], "dp").out.split())  # nothing has head-room: it is the fastest, and said
    assert "of usable memory. Of 46 published runs predicted above 95 %, 9 ran out of memory" in alone


def test_nothing_is_said_where_there_is_room(foretell: Any) -> None:
    ran = foretell("plan", TINY, "--on", "4xh100", "--batch", "8", "--only", "dp")
    assert "close" not in ran.out
    half = ("plan", "gpt2", "--on", "1xh100", "--batch", "8", "--only", "dp", "--max-memory", "9 GB")
    assert "close" not in foretell(*half).out  # the device has more than that


ROWS = some.lists(some.tuples(some.integers(1, 9), some.integers(1, 9)), min_size=1, max_size=12)


@given(ROWS, some.integers(1, 9))
def test_the_plan_with_room_is_the_fastest_of_those(rows: list[tuple[int, int]], usable: int) -> None:
    seconds, memory = (numpy.array(column, float) for column in zip(*rows, strict=True))
    plans = PricedPlans(seconds, memory, float(usable), lambda at: Plan((Data(ranks=at + 2),)))
    fitting = [row for row in rows if row[1] <= usable]
    found = headroom.roomy(cast("Any", SimpleNamespace(pareto=plans.front())), float(usable))
    within = [row for row in fitting if row[1] <= headroom.ROOMY * usable]
    assert (found.step_seconds if found else None) == (min(within)[0] if within else None)


@pytest.mark.slow
def test_what_is_said_of_published_runs_is_so() -> None:
    """The figures are of the cost model of their day: they may move a little, not turn into others."""
    from foretell.oracle.predict import predict
    from foretell.validation import published
    from foretell.validation.evaluate import compare
    from foretell.validation.study import read

    runs = [
        one
        for name in ("ultrascale_h100", "llm_measured")
        for one in compare([row for row in read(published.files(name)[0]).rows if not row.assumed], predict)
        if one.prediction is not None
    ]
    full = [
        one.row.outcome != "ok"
        for one in runs
        if headroom.close(cast("Any", one.prediction).memory_bytes, cast("Any", one.prediction).usable)
    ]
    failed, known = headroom.FAILED
    assert sum(full) / len(full) == pytest.approx(failed / known, abs=0.08)
    peaks = sorted(pair.measured / pair.predicted for one in runs for pair in one.memory)
    assert peaks[int(0.9 * len(peaks))] - 1 == pytest.approx(headroom.ABOVE, abs=0.04)


# Plans that are told. ----------------------------------------------------------------------------------


@functools.cache
def several() -> SearchResult:
    return package.plan("gpt2", "4xh100", 64, only="dp,cp,tp", top=6)


def mesh(plan: str) -> tuple[tuple[str, int], ...]:
    return tuple((axis.word, axis.world) for axis in parse(plan).axes)


@pytest.mark.parametrize("by", ["time", "memory"])
def test_each_layout_is_told_once_by_its_best_plan(by: str) -> None:
    found = planning.by_memory(several()) if by == "memory" else several()
    told = layouts(found, by)
    assert told[0].plan == (found.best if by == "memory" else found.fastest) and len(told) == len(found.top)
    names = [one.plan.plan for one in told] + [other.plan for one in told for other in one.others]
    assert len({mesh(one.plan.plan) for one in told}) == len(told) and len(set(names)) == len(names)

    def figure(one: Candidate) -> float:
        return one.memory_bytes if by == "memory" else one.step_seconds

    least: dict[Any, float] = {}
    for row in (Candidate(*row[:3]) for row in found.plans.rows() if row[3]):
        least[mesh(row.plan)] = min(figure(row), least.get(mesh(row.plan), figure(row)))
    for one in told:
        assert figure(one.plan) == least[mesh(one.plan.plan)]
        for other in one.others:
            alike = (other.step_seconds, other.memory_bytes) == (one.plan.step_seconds, one.plan.memory_bytes)
            assert alike or (mesh(other.plan) == mesh(one.plan.plan) and figure(other) <= 1.01 * figure(one.plan))
    assert [figure(one.plan) for one in told] == sorted(figure(one.plan) for one in told)
    assert any(one.others for one in told)


def test_few_meshes_are_few_lines() -> None:
    found = package.plan("gpt2", "4xh100", 16, only="dp,recompute", top=6)
    assert [mesh(one.plan.plan) for one in layouts(found)] == [(("dp", 4),)] and len(found.top) == 6


def test_a_twin_speaks_for_its_mesh() -> None:
    """What comes behind it is not the best of its mesh, and no line of its own."""
    texts, seconds = ("dp4 +bf16", "tp4 +bf16", "tp4:sp +bf16", "dp2 tp2 +bf16"), (1.0, 1.0, 2.0, 3.0)
    plans = [parse(text) for text in texts]
    found = PricedPlans(numpy.array(seconds), numpy.ones(4), 10.0, lambda at: plans[at])
    asked = SimpleNamespace(plans=found, finer=(), top=found.fastest(4), capacity=10.0)
    assert [one.plan.plan for one in layouts(cast("Any", asked))] == [texts[0], texts[3]]


PRICED = {
    "pp2:1f1b dp2:zero1 +m4 +bf16": (1.0, 5.0),
    "dp2:zero3,shard2 +bf16": (1.001, 6.0),
    "dp4:zero3 +bf16": (1.004, 6.0),
    "dp4:zero1 +bf16": (1.006, 7.0),
    "dp4 +bf16": (1.008, 11.0),  # more than there is
    "tp4 +bf16": (1.02, 4.0),  # slower
}


def priced(**limits: float) -> Any:
    plans = [parse(text) for text in PRICED]
    seconds, memory = (numpy.array(figures) for figures in zip(*PRICED.values(), strict=True))
    found = PricedPlans(seconds, memory, limits.get("capacity", 10.0), lambda at: plans[at])
    return SimpleNamespace(plans=found, best=found.fastest(1)[0])


def test_the_plainer_plan_has_fewest_words_then_fewest_options_then_is_fastest() -> None:
    assert plainer(priced()) == Candidate("dp4:zero3 +bf16", 1.004, 6.0)
    assert plainer(priced(capacity=12.0)) == Candidate("dp4 +bf16", 1.008, 11.0)
    assert plainer(priced(capacity=5.5)) is None
    assert plainer(cast("Any", SimpleNamespace(best=None, plans=None))) is None


def test_a_search_tells_the_plainer_plan(foretell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("plan", "gpt2", "--on", "4xh100", "--batch", "8", "--only", "dp", "--without", "microbatches")
    asked = (*asked, "--trainer", "megatron-core")
    monkeypatch.setattr("foretell.oracle.layouts.NEAR", 9.0)  # everything is as fast
    answer = json.loads(foretell(*asked, "--json").out)
    assert answer["plainer"]["plan"] == "dp4 +bf16" != answer["best"]["plan"]
    assert answer["layouts"][0]["plan"] == answer["fastest"]["plan"]


@pytest.mark.parametrize(
    ("seconds", "ranks"), [((1.0, 0.995, 0.992), 8), ((1.0, 0.5, 0.499), 16), ((1.0, 0.9, 0.8), 32)]
)
def test_more_ranks_have_to_be_faster(seconds: tuple[float, ...], ranks: int) -> None:
    counts = zip((8, 16, 32), seconds, strict=True)
    found = [SimpleNamespace(ranks=count, batch=8, best=Candidate("dp", taken, 1.0)) for count, taken in counts]
    best = planning.best_of(cast("Any", [SimpleNamespace(found=one, joules=0.0) for one in found]), "time")
    assert best is not None and best.found.ranks == ranks


def test_idle_ranks_are_told(foretell: Any) -> None:
    some_idle = foretell("predict", TINY, "--on", "8xh100", "--plan", "dp2", "--batch", "2").out
    assert "2 of the 8 GPUs of 8xh100, 6 idle" in some_idle
    assert "idle" not in foretell("predict", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", "2").out


def test_memory_is_told_in_one_way(foretell: Any) -> None:
    phrase = "of 76.8 GiB usable"
    on, job = ("--on", "2xh100"), ("--batch", "4")
    for asked in (
        ("predict", TINY, *on, *job, "--plan", "dp2 +bf16"),
        ("fit", TINY, *on, *job),
        ("why", TINY, *on, *job, "--plan", "dp2 +bf16", "--only", "dp"),
    ):
        assert phrase in foretell(*asked).out, asked[0]
    too_large = foretell("predict", "llama3-8b", *on, *job, "--plan", "dp2 +bf16").out
    assert phrase in too_large and "of 79" not in too_large


@pytest.mark.parametrize("verb", ["predict", "program"])
def test_suggestions_name_the_verb_that_was_typed(foretell: Any, verb: str) -> None:
    ran = foretell(verb, TINY, "--on", "2xh100")
    assert ran.code == 2 and f"foretell {verb} " in ran.err


# Words and numbers. ------------------------------------------------------------------------------------


def test_words_may_be_one_text() -> None:
    listed = package.plan(TINY, "2xh100", 4, only=["dp", "tp"])
    for words in ("dp,tp", "dp tp", ("dp", "tp")):
        found = package.plan(TINY, "2xh100", 4, only=words)
        assert (found.evaluated, found.best) == (listed.evaluated, listed.best)
    assert package.plan(TINY, "2xh100", 4, only="dp").evaluated < listed.evaluated
    for nothing in ({"only": ""}, {"without": " , "}, {"also": ""}):
        with pytest.raises(BadInput, match="names nothing"):
            package.plan(TINY, "4xh100", 8, **cast("Any", nothing))


@pytest.mark.parametrize("option", ["--only", "--without", "--also"])
@pytest.mark.parametrize("verb", ["plan", "scale"])
def test_a_blank_option_is_a_slip(foretell: Any, verb: str, option: str) -> None:
    ran = foretell(verb, TINY, "--on", "2xh100", "--batch", "4", "--gpus", "2", option, "")
    assert ran.code == 2 and f"{option} names nothing" in ran.err


@given(some.floats(0, 1e60))
def test_any_number_is_short(value: float) -> None:
    for show in (show_bytes, show_count, show_seconds, show_span):
        assert len(show(value)) <= 17, show(value)


def test_absurd_numbers() -> None:
    assert show_bytes(5e24) == "4.14 YiB"
    assert show_count(1.3e24) == "1.30 Y"
    assert show_seconds(5.46 * 365.25 * 86400) == "5.46 years"
    assert [show_seconds(value) for value in (1.5, 999.0, 3600.0, 36000.0, 1e6)] == [
        *("1.5 s", "999 s", "3,600 s", "10 h", "11.6 d")
    ]
    assert show_span(1e12) == "31,688 years"
    assert show_span(90) == "90 s" and show_span(150) == "2.5 min"


def test_an_absurd_question_has_an_answer(foretell: Any) -> None:
    asked = ("predict", TINY, "--on", "2xh100", "--plan", "dp2", "--batch", str(2**22), "--samples", "1e25")
    ran = foretell(*asked, "--price", "3")
    assert ran.code == 1 and "years" in ran.out and max(map(len, ran.out.splitlines())) <= 80
    assert foretell("plan", TINY, "--on", "2xh100", "--batch", str(2**22), "--only", "dp").code == 0


# Exit codes. -------------------------------------------------------------------------------------------


def test_nothing_fits_is_code_1(foretell: Any) -> None:
    plan = ("plan", TINY, "--on", "1xh100", "--batch", "8", "--only", "dp")
    assert foretell(*plan).code == 0
    for more in ("--max-memory 1GB", "--max-memory 1GB --json", "--samples 1e9 --deadline 1s"):
        assert foretell(*plan, *more.split()).code == 1
    assert foretell("fit", "gpt2", "--on", "1xh100").code == 0
    assert foretell("fit", "llama3-70b", "--on", "1xh100", "--plan", "dp1 +bf16").code == 1
    assert foretell("plan", "gpt2", "--on", "1xnothing", "--batch", "8").code == 2


# Progress. ---------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(time, "monotonic", Clock())
    shown = progress.Progress()
    for done in range(100):
        shown.cells(done, 0, 100)
    shown.end()
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 10
    assert all("\r" not in line and line.startswith("sweep ") and " cells" in line for line in lines)
    assert "left" in lines[-1]


def test_runs_say_what_they_do_and_about_how_long_they_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "monotonic", Clock())
    with progress.Progress("simulate") as shown:
        for done in range(100):
            shown.runs("async, 16 workers", done / 100)
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 10 and all(line.startswith("simulate ") for line in lines)
    assert all("async, 16 workers, about" in line and line.endswith("left") for line in lines[1:])


def test_a_terminal_gets_one_line_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(time, "monotonic", Clock())
    shown = progress.Progress()
    for done in range(4):
        shown.cells(done, 0, 4)
    shown.end()
    text = capsys.readouterr().err
    assert "\n" not in text and text.endswith("\r") and "[" in text
