"""Two questions side by side: both predictions, what differs in the questions, and where that shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec

from foretell.oracle.part_names import part_name
from foretell.oracle.predict import Prediction
from foretell.oracle.written import StepAnswer, written
from foretell.report.charts import breakdown
from foretell.report.page import Page, Section, body
from foretell.report.svg import Chart, byte_unit, quoted
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.question import Question, read
from foretell.units import show_bytes, show_rate, show_seconds

NAMES = ("first", "second")

SAME = 0.001
"""Share of a step below which two are the same."""


class ComparedQuestions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two questions."""

    first: Question
    second: Question


class ComparisonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Two answers. `faster` is how many times as many samples a second the second one takes."""

    first: StepAnswer
    second: StepAnswer
    faster: float
    said: str  # in a sentence
    html: str


def answer(pair: ComparedQuestions) -> ComparisonAnswer:
    first, second = (told(read(one)) for one in (pair.first, pair.second))
    said = sentence(first, second)
    columns = ("side by side", *NAMES, "second over first")
    section = Section("Where they differ", said, charts(first, second), columns, rows(first, second))
    page = Page(title="", plan="", cards=(), sections=(section,))
    return ComparisonAnswer(
        first=written(first),
        second=written(second),
        faster=second.samples_per_second / first.samples_per_second,
        said=said,
        html=both_plans(first.plan, second.plan) + body(page),
    )


def sentence(first: Prediction, second: Prediction) -> str:
    """Which is faster, by how much, and where most of that comes from."""
    faster = second.samples_per_second / first.samples_per_second
    misfit = _misfit(first, second)
    if abs(faster - 1) < SAME:
        return f"Both are as fast; the second takes {_room(first, second)}.{misfit}"
    which = f"The second is {faster:.3g} times as fast" if faster > 1 else f"The second is {1 - faster:.1%} slower"
    return f"{which}, with {_room(first, second)}.{_most(first, second, faster > 1)}{misfit}"


def _room(first: Prediction, second: Prediction) -> str:
    memory = second.memory_bytes - first.memory_bytes
    if abs(memory) < SAME * first.memory_bytes:
        return "as much memory a GPU"
    return f"{show_bytes(abs(memory))} {'more' if memory > 0 else 'less'} memory a GPU"


def _most(first: Prediction, second: Prediction, faster: bool) -> str:
    """Of the parts of a step that change the way the whole does, the one that does most; for a sample where batches
    differ. What goes the other way is no reason."""
    parts = breakdown.phases([first.breakdown, second.breakdown])
    saved = {name: _of_a_sample(first, name) - _of_a_sample(second, name) for name in parts}
    gains = {name: seconds if faster else -seconds for name, seconds in saved.items()}
    name = max(gains, key=lambda one: gains[one], default="")
    if not name or gains[name] <= 0:
        return ""
    times, each = (second.batch, "step") if first.batch == second.batch else (1, "sample")
    way = "less" if faster else "more"
    return f" Most of it is {part_name(name)}: {show_seconds(gains[name] * times)} {way} a {each}."


def _of_a_sample(found: Prediction, part: str) -> float:
    return found.breakdown.get(part, 0.0) / found.batch


def _misfit(first: Prediction, second: Prediction) -> str:
    over = [name for name, one in zip(NAMES, (first, second), strict=True) if not one.fits]
    return f" The {' and the '.join(over)} {'does' if len(over) == 1 else 'do'} not fit." if over else ""


def charts(first: Prediction, second: Prediction) -> tuple[Chart, Chart]:
    """What both are spent on, and what memory both take."""
    both = dict(zip(NAMES, (first, second), strict=True))
    intervals = {name: one.interval for name, one in both.items()}
    time = breakdown.draw(
        {name: one.breakdown for name, one in both.items()}, intervals, "steps", "What both steps are spent on"
    )
    kinds = {name: one.memory.by_kind for name, one in both.items()}
    unit = byte_unit(max(first.memory_bytes, second.memory_bytes))
    held = breakdown.draw(kinds, None, "memories", "What memory both take", show_bytes, unit=unit)
    sizes = "; ".join(f"the {name} takes {show_bytes(one.memory_bytes)} a rank" for name, one in both.items())
    return time, replace(held, told=sizes, columns=("plan", "kind", "bytes", "share"))


def both_plans(first: str, second: str) -> str:
    """The plans under each other, the words that only one of them has marked."""
    lines = ((name, own, other) for name, own, other in zip(NAMES, (first, second), (second, first), strict=True))
    items = "".join(f"<div><dt>{name}</dt><dd>{' '.join(_marked(own, other))}</dd></div>" for name, own, other in lines)
    return f'<dl class="plans">{items}</dl>'


def _marked(own: str, other: str) -> Iterator[str]:
    known = set(other.split())
    for word in own.split() or ["one rank"]:
        yield quoted(word) if word in known else f"<mark>{quoted(word)}</mark>"


def rows(first: Prediction, second: Prediction) -> tuple[tuple[str, ...], ...]:
    """What is asked, where that differs; the figures; then the parts of the steps and of memory, the largest first."""
    asked = [("model", "model"), ("cluster", "on"), ("batch", "batch"), ("trainer", "trainer")]
    head = [(word, *(str(getattr(one, name)) for one in (first, second)), "") for name, word in asked]
    return (
        *(row for row in head if row[1] != row[2]),
        ("fits", *("yes" if one.fits else "no" for one in (first, second)), ""),
        _row("a step", show_seconds, first.step_seconds, second.step_seconds),
        _row("samples/s", show_rate, first.samples_per_second, second.samples_per_second),
        _row("memory of a GPU", show_bytes, first.memory_bytes, second.memory_bytes),
        _row("MFU", lambda share: f"{share:.1%}", first.utilisation, second.utilisation),
        *_parts(show_seconds, first.breakdown, second.breakdown),
        *_parts(show_bytes, first.memory.by_kind, second.memory.by_kind),
    )


def _parts(
    show: Callable[[float], str], first: Mapping[str, float], second: Mapping[str, float]
) -> Iterator[tuple[str, ...]]:
    for name in breakdown.phases([first, second]):
        yield _row(part_name(name), show, first.get(name, 0.0), second.get(name, 0.0))


def _row(name: str, show: Callable[[float], str], first: float, second: float) -> tuple[str, ...]:
    return name, show(first), show(second), f"{second / first - 1:+.1%}" if first else ""


CALL = Call(ComparedQuestions, ComparisonAnswer, answer)
