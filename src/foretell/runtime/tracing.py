"""A step that ran next to the step that was predicted, in one file for Perfetto (ui.perfetto.dev).

Every rank is a process with a row for its phases and one for each thread or stream; what was predicted are processes of
their own, so that both lie under each other on one axis of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretell.files import save
from foretell.runtime.assignment import Happening, Report
from foretell.timeline.simulate import Simulated
from foretell.timeline.trace import trace

FIRST = 1000
"""The process of rank 0; predicted ones are counted from 0."""

COMMUNICATION = ("nccl", "gloo:")
"""How kernels and operators begin that talk to other ranks."""

SLEEPS = "spin_kernel"
"""In the name of the kernel that stands for a message in a rehearsal (`torch.cuda._sleep`)."""


def merged(reports: Sequence[Report], predicted: Simulated | None) -> dict[str, Any]:
    """Both as plain data, in the Trace Event Format."""
    told: dict[str, Any] = trace(predicted) if predicted is not None else {"traceEvents": [], "displayTimeUnit": "ms"}
    events: list[dict[str, Any]] = [_named(one) for one in told["traceEvents"]]
    begin = min((one.start for report in reports for one in report.trace), default=0)
    for report in reports:
        events += _process(report, begin)
    return {**told, "traceEvents": events}


def write_merged(reports: Sequence[Report], predicted: Simulated | None, file: str) -> None:
    save(Path(file), msgspec.json.encode(merged(reports, predicted)), "trace")


def _named(event: dict[str, Any]) -> dict[str, Any]:
    """A process of the prediction, said to be one."""
    if event.get("name") != "process_name":
        return event
    return {**event, "args": {"name": f"predicted, {event['args']['name']}"}}


def _process(report: Report, begin: int) -> Iterable[dict[str, Any]]:
    """The rank's own process: metadata, then what happened, in microseconds from the first thing that did."""
    process = FIRST + report.rank
    place = ", ".join(f"{axis} {at}" for axis, at in report.place.items())
    yield _metadata("process_name", process, 0, name=f"measured, rank {report.rank}" + (f" ({place})" if place else ""))
    yield _metadata("process_sort_index", process, 0, sort_index=process)
    threads = sorted({one.thread for one in report.trace}, key=_order)
    for at, name in enumerate(threads):
        yield _metadata("thread_name", process, at, name=name)
        yield _metadata("thread_sort_index", process, at, sort_index=at)
    for one in report.trace:
        yield {
            "name": one.name,
            "cat": one.thread.split()[0],
            "ph": "X",
            "pid": process,
            "tid": threads.index(one.thread),
            "ts": (one.start - begin) / 1e3,
            "dur": one.nanoseconds / 1e3,
        }


def _order(thread: str) -> tuple[bool, str]:
    return thread != "phases", thread


def _metadata(what: str, process: int, thread: int, **said: str | int) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": said}


# what is exposed on a GPU


def exposed_seconds(trace: Iterable[Happening]) -> float:
    """Seconds in which a device talks to others and computes nothing: its thread does not wait, but its step does."""
    talking: list[tuple[int, int]] = []
    computing: list[tuple[int, int]] = []
    for one in trace:
        if one.thread.startswith("device"):
            span = (one.start, one.start + one.nanoseconds)
            talks = one.name.lower().startswith(COMMUNICATION) or SLEEPS in one.name
            (talking if talks else computing).append(span)
    return (_covered([*talking, *computing]) - _covered(computing)) / 1e9


def idle_share(trace: Iterable[Happening], step: float) -> float:
    """The share of a step in which no kernel runs on a device, and none stands for a message: it waits for its host.
    The step is one without the profiler, beside which a host is slower."""
    spans = [(one.start, one.start + one.nanoseconds) for one in trace if one.thread.startswith("device")]
    return max(0.0, 1 - _covered(spans) / 1e9 / step) if spans and step else 0.0


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds that some span covers."""
    total, reached = 0, None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        total += max(0, end - begin)
        reached = end if reached is None else max(reached, end)
    return total
