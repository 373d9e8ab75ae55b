"""A step played through, event by event, as a file for Perfetto; of two questions both, under each other."""

from __future__ import annotations

from typing import Any

from foretell.program.lower import lower
from foretell.serve.calls import Call
from foretell.serve.question import Question, read
from foretell.timeline.simulate import simulate
from foretell.timeline.trace import trace


class Traced(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and perhaps another one to lay beside it."""

    beside: Question | None = None


def answer(question: Traced) -> dict[str, Any]:
    first = _played(question)
    if question.beside is None:
        return first
    second = _played(question.beside)
    ranks = 1 + max(event["pid"] for event in first["traceEvents"])
    both = [*_called(first, "first", 0), *_called(second, "second", ranks)]
    about = {"first": first["otherData"], "second": second["otherData"]}
    return {**first, "traceEvents": both, "otherData": about}


def _played(question: Question) -> dict[str, Any]:
    asked = read(question)
    return trace(simulate(lower(asked.setting), asked.setting, asked.cluster))


def _called(found: dict[str, Any], name: str, after: int) -> list[dict[str, Any]]:
    """Events of one of two traces: its processes come after so many others, and say whose they are."""
    moved: list[dict[str, Any]] = [{**event, "pid": event["pid"] + after} for event in found["traceEvents"]]
    for event in moved:
        if event["name"] == "process_name":
            event["args"] = {"name": f"{name}: {event['args']['name']}"}
        elif event["name"] == "process_sort_index":
            event["args"] = {"sort_index": event["args"]["sort_index"] + after}
    return moved


CALL = Call(Traced, dict[str, Any], answer)
