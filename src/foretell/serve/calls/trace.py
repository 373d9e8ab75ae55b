"""A step played through, event by event, as a file for Perfetto, with another one or a measured one under it."""

from __future__ import annotations

from typing import Any

from foretell.cost.price import priced
from foretell.serve.calls import Call
from foretell.serve.measured import PerhapsUpload, processes
from foretell.serve.question import Question, read
from foretell.timeline.simulate import simulate
from foretell.timeline.trace import trace


class TraceQuestion(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and perhaps another one to lay beside it, or what was measured."""

    beside: Question | None = None
    measured: PerhapsUpload = ""


def answer(question: TraceQuestion) -> dict[str, Any]:
    first = _played(question)
    rows, about = first["traceEvents"], first["otherData"]
    if question.beside is not None:
        second = _played(question.beside)
        rows = [*_called(rows, "first", 0), *_called(second["traceEvents"], "second", _processes(rows))]
        about = {"first": about, "second": second["otherData"]}
    elif question.measured:
        rows = _called(rows, "predicted", 0)
    if question.measured:
        rows = [*rows, *processes(question.measured, _processes(rows))]
    return {**first, "traceEvents": rows, "otherData": about}


def _processes(events: list[dict[str, Any]]) -> int:
    return 1 + max((event["pid"] for event in events), default=-1)


def _played(question: Question) -> dict[str, Any]:
    asked = read(question)
    return trace(simulate(priced(asked.setting, asked.place)))


def _called(events: list[dict[str, Any]], name: str, after: int) -> list[dict[str, Any]]:
    """Events of one of several traces: its processes come after so many others, and say whose they are."""
    moved: list[dict[str, Any]] = [{**event, "pid": event["pid"] + after} for event in events]
    for event in moved:
        if event["name"] == "process_name":
            event["args"] = {"name": f"{name}: {event['args']['name']}"}
        elif event["name"] == "process_sort_index":
            event["args"] = {"sort_index": event["args"]["sort_index"] + after}
    return moved


CALL = Call(TraceQuestion, dict[str, Any], answer)
