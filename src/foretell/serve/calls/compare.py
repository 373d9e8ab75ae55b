"""Two questions side by side: both predictions, and where they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from foretell.oracle.predict import Prediction
from foretell.report.charts import breakdown
from foretell.report.page import Page, Section, body
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.question import Question, read
from foretell.units import show_bytes, show_seconds

NAMES = ("first", "second")


class Pair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two questions."""

    first: Question
    second: Question


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two answers. `faster` is how many times as many samples a second the second one takes."""

    first: Prediction
    second: Prediction
    faster: float
    html: str


def answer(pair: Pair) -> Comparison:
    first, second = (told(read(one)) for one in (pair.first, pair.second))
    both = dict(zip(NAMES, (first, second), strict=True))
    bars = {name: one.breakdown for name, one in both.items()}
    chart = breakdown.draw(bars, {name: one.interval for name, one in both.items()})
    chart = replace(chart, name="steps", title="What both steps are spent on")
    columns = ("side by side", *NAMES, "second over first")
    section = Section("Two plans side by side", "", (chart,), columns, rows(first, second))
    return Comparison(
        first=first,
        second=second,
        faster=second.samples_per_second / first.samples_per_second,
        html=body(Page(title="", plan="", cards=(), sections=(section,))),
    )


def rows(first: Prediction, second: Prediction) -> tuple[tuple[str, ...], ...]:
    """What is asked first, then the parts of the steps, the largest first."""
    head = [
        ("model", first.model, second.model, ""),
        ("plan", first.plan, second.plan, ""),
        ("on", first.cluster, second.cluster, ""),
        ("fits", *("yes" if one.fits else "no" for one in (first, second)), ""),
        _row("a step", show_seconds, first.step_seconds, second.step_seconds),
        _row("samples a second", lambda rate: f"{rate:,.4g}", first.samples_per_second, second.samples_per_second),
        _row("memory of a rank", show_bytes, first.memory_bytes, second.memory_bytes),
        _row("of the peak", lambda share: f"{share:.1%}", first.utilisation, second.utilisation),
    ]
    parts = breakdown.phases([first.breakdown, second.breakdown])
    return (
        *head,
        *(_row(name, show_seconds, first.breakdown.get(name, 0.0), second.breakdown.get(name, 0.0)) for name in parts),
    )


def _row(name: str, show: Callable[[float], str], first: float, second: float) -> tuple[str, ...]:
    return name, show(first), show(second), f"{second / first - 1:+.1%}" if first else ""


CALL = Call(Pair, Comparison, answer)
