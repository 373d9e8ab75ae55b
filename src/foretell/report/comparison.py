"""A page about a run: what was predicted, what was measured, and where they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretell.cost.memory import WORK
from foretell.oracle.explain import Bottleneck
from foretell.oracle.part_names import part_name
from foretell.oracle.predict import Prediction
from foretell.plan.text import parse
from foretell.report.bibliography import papers
from foretell.report.charts import breakdown
from foretell.report.page import Card, Page, Section
from foretell.report.sections import accuracy_section
from foretell.report.svg import byte_unit
from foretell.runtime.comparison import Comparison, TrafficMismatch
from foretell.runtime.outside import Outside
from foretell.timeline.observation import Observation
from foretell.units import show_bytes, show_seconds


def comparison_page(found: Comparison) -> Page:
    """Both sides of one run."""
    predicted, measured = found.predicted, found.measured
    return Page(
        title=f"{predicted.model}: predicted and measured",
        plan=predicted.plan,
        cards=tuple(both_cards(predicted, measured)),
        sections=(
            time_section(predicted, measured),
            _memory(predicted, measured),
            *_outside(found.outside),
            *_limits(predicted.bottlenecks, found.limits),
            _collectives(found.collectives),
            accuracy_section(),
        ),
        papers=papers(predicted.model, parse(predicted.plan)),
    )


def both_cards(predicted: Prediction, measured: Observation) -> Iterator[Card]:
    """The step and the memory of both sides."""
    error = predicted.step_seconds / measured.step_seconds - 1
    inside = predicted.interval[0] <= measured.step_seconds <= predicted.interval[1]
    yield Card("predicted", show_seconds(predicted.step_seconds), "a step")
    yield Card("measured", show_seconds(measured.step_seconds), "a step")
    yield Card("predicted over measured", f"{error:+.1%}", f"{'inside' if inside else 'outside'} the interval")
    before, after = predicted.memory.allocated, measured.memory.allocated
    yield Card("memory of tensors", show_bytes(after), f"{show_bytes(before)} were predicted")


def time_section(predicted: Prediction, measured: Observation) -> Section:
    """Part by part."""
    rows = tuple(
        (part_name(name), show_seconds(before), show_seconds(after), f"{(before - after) / measured.step_seconds:+.1%}")
        for name, before, after in _both(predicted.breakdown, measured.breakdown)
    )
    bars = {"predicted": predicted.breakdown, "measured": measured.breakdown}
    chart = breakdown.draw(bars, {"predicted": predicted.interval})
    return Section("Where the time goes", "", (chart,), ("part", "predicted", "measured", "error, of a step"), rows)


def _memory(predicted: Prediction, measured: Observation) -> Section:
    """What tensors take: those that rest between steps, and those that come and go."""
    before, after = _tensors(predicted), _tensors(measured)
    chart = breakdown.draw(
        {"predicted": before, "measured": after},
        file="memory",
        title="What memory is taken by",
        show=show_bytes,
        takes="has",
        unit=byte_unit(max(sum(before.values()), sum(after.values()))),
    )
    rows = tuple((part_name(name), show_bytes(one), show_bytes(other)) for name, one, other in _both(before, after))
    told = f"The memory peak is predicted during {predicted.memory.peak_moment}."
    return Section("Memory", told, (chart,), ("tensors", "predicted", "measured"), rows)


def _tensors(found: Observation) -> dict[str, float]:
    working = min(found.memory.allocated, sum(found.memory.by_kind.get(kind, 0.0) for kind in WORK))
    return {"resting": found.memory.allocated - working, "working": working}


def _both(before: dict[str, float], after: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    for name in sorted({*before, *after}, key=lambda one: -max(before.get(one, 0.0), after.get(one, 0.0))):
        yield name, before.get(name, 0.0), after.get(name, 0.0)


def _outside(found: Sequence[Outside]) -> Iterator[Section]:
    """Phases and ranks that are not as foretold."""
    if not found:
        return
    rows = tuple((f"{one.kind}: {one.name}", show_seconds(one.seconds), _band(one), one.why) for one in found)
    yield Section("Outside its band", "", columns=("what", "measured", "expected", "why"), rows=rows)


def _band(one: Outside) -> str:
    return f"{show_seconds(one.low)} to {show_seconds(one.high)}"


def _limits(predicted: Sequence[Bottleneck], measured: Sequence[Bottleneck]) -> Iterator[Section]:
    """What limits the step, by the same rules on both sides."""
    sides = (("predicted", predicted), ("measured", measured))
    rows = tuple((side, one.name, one.why, one.relief) for side, ones in sides for one in ones)
    if rows:
        yield Section("What limits it", "", columns=("side", "limit", "why", "relief"), rows=rows)


def _collectives(found: TrafficMismatch) -> Section:
    sides = (("ran, and was not predicted", found.unexpected), ("was predicted, and did not run", found.missing))
    rows = tuple(
        (what, one.phase, one.kind, f"{one.count:,}", show_bytes(one.payload)) for what, ones in sides for one in ones
    )
    told = "" if rows else "Every collective that ran is one that the program has: the same kinds, numbers and bytes."
    return Section("Collectives", told, columns=("what", "phase", "kind", "count", "payload"), rows=rows)
