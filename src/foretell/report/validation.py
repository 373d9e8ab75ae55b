"""The scoreboard as a page: every measured run against its prediction, by study."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from foretell.report.charts import agreement, errors
from foretell.report.charts.agreement import Met
from foretell.report.page import Card, Page, Section
from foretell.units import show_bytes, show_seconds
from foretell.validation.evaluate import ComparedRun, Errors, Scores, scores
from foretell.validation.study import Study

Done = Sequence[tuple[Study, Sequence[ComparedRun]]]
"""Studies, each with its runs as they were foretold."""

COLUMNS = ("study", "runs", "scored", "refused", "not scored", "mean", "median", "p90", "bias", "memory", "inside")


def scoreboard_page(done: Done) -> Page:
    """How far predictions are from these runs, in time and in memory."""
    times, sizes = list(_times(done)), list(_sizes(done))
    lines = tuple(_line(scores(study, list(compared))) for study, compared in done)
    apart: dict[str, list[float]] = {}
    for one in times:
        apart.setdefault(one.group, []).append(abs(one.error))
    return Page(
        title="Predictions against measured runs",
        plan="",
        cards=tuple(_cards(times, sizes)),
        sections=(
            Section("The scoreboard", "Errors are shares of what was measured.", (), COLUMNS, lines),
            *([Section("Time of a step", NEAR, (agreement.draw(times, "a step", show_seconds),))] if times else []),
            *([Section("By study", "", (errors.draw(apart),))] if apart else []),
            *([Section("Memory", "", (agreement.draw(sizes, "memory", show_bytes, "memory"),))] if sizes else []),
            *_left_out(done),
        ),
    )


NEAR = (
    f"A dot on the line is a run that took as long as predicted; dashed lines are a factor of {agreement.NEAR:g} off."
)


def _times(done: Done) -> Iterator[Met]:
    for study, compared in done:
        for one in compared:
            if one.time is not None and one.prediction is not None and one.time.predicted > 0:
                low, high = one.prediction.interval
                yield Met(_told(one), study.name, one.time.measured, one.time.predicted, low, high)


def _sizes(done: Done) -> Iterator[Met]:
    for study, compared in done:
        for one in compared:
            yield from (Met(_told(one), study.name, pair.measured, pair.predicted) for pair in one.memory)


def _told(one: ComparedRun) -> str:
    return f"{one.row.model}, {one.row.plan} on {one.row.cluster}"


def _cards(times: Sequence[Met], sizes: Sequence[Met]) -> Iterator[Card]:
    if times:
        yield Card("steps", f"{_middle(times):.1%}", f"median error of {len(times):,} runs")
        inside = sum(one.low <= one.measured <= one.high for one in times) / len(times)
        yield Card("inside the interval", f"{inside:.0%}", "nine in ten are meant to be")
    if sizes:
        yield Card("memory", f"{_middle(sizes):.1%}", f"median error of {len(sizes):,} figures")


def _middle(runs: Sequence[Met]) -> float:
    return statistics.median(abs(one.error) for one in runs)


def _line(one: Scores) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (one.total, one.n, one.refused, one.not_scored))
    inside = "-" if one.inside is None else f"{one.inside:.0%}"
    return (one.study, *counts, *_four(one.time), "-" if one.memory is None else f"{one.memory.median:.1%}", inside)


def _four(found: Errors | None) -> tuple[str, ...]:
    if found is None:
        return ("-",) * 4
    return (f"{found.mape:.1%}", f"{found.median:.1%}", f"{found.p90:.1%}", f"{found.bias:+.1%}")


def _left_out(done: Done) -> Iterator[Section]:
    """Runs that are not scored, by reason: they are counted, and never a default in disguise."""
    rows: list[tuple[str, str, str]] = []
    for study, compared in done:
        found = scores(study, list(compared))
        for what, counts in (("refused", found.refused_rules), ("not scored", found.not_scored_reasons)):
            rows += [(study.name, what, f"{count:,}: {reason}") for reason, count in counts.items()]
    if rows:
        yield Section("Not scored, and why", "", columns=("study", "what", "why"), rows=tuple(rows))
