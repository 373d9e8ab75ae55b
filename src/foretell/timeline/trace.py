"""A simulated step as a file for Perfetto (ui.perfetto.dev) or chrome://tracing.

The format is that of the Trace Event Format: complete events (`ph` X) with times in microseconds, and metadata
events (`ph` M) that name processes and threads. One process for all ranks of a place on the pipeline, which do the
same; one thread a stream. Long steps are folded (`timeline.fold`), and `otherData` says how.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec

from foretell.files import save
from foretell.timeline.fold import BUDGET, fold
from foretell.timeline.simulate import Event, Simulated

ORDER = ("host", "compute", "activations", "weights", "sends", "copies")
"""Streams from top to bottom, by the first word of their names."""


def trace(simulated: Simulated, budget: int = BUDGET) -> dict[str, Any]:
    """The trace as plain data, in so many events. Where the host is ahead of the step, it begins with the host."""
    folded = fold(simulated, budget)
    streams = {
        kind: sorted({event.stream for event in simulated.events if event.kind == kind}, key=_place)
        for kind in range(len(simulated.kinds))
    }
    threads = {(kind, name): at for kind, names in streams.items() for at, name in enumerate(names)}
    begin = min((event.start for event in simulated.events), default=0.0)
    named = [one for kind, names in streams.items() for one in _names(kind, simulated.kinds[kind], names)]
    early = min(0.0, begin)
    events = [_complete(event, count, threads[event.kind, event.stream], early) for event, count in folded.events]
    about = {
        "model": simulated.model,
        "plan": simulated.plan,
        "step_seconds": simulated.step_seconds,
        "microbatches": simulated.microbatches,
        "folded": folded.said,
    }
    return {"traceEvents": [*named, *events], "displayTimeUnit": "ms", "otherData": about}


def write_trace(simulated: Simulated, path: str | Path) -> None:
    """Write the trace of a step to a file; one whose name ends in .gz is compressed, which viewers open too."""
    content = msgspec.json.encode(trace(simulated))
    path = Path(path)
    save(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content, "trace")


def _place(stream: str) -> tuple[int, str]:
    return ORDER.index(stream.split()[0]), stream


def _names(kind: int, name: str, streams: list[str]) -> list[dict[str, Any]]:
    """Metadata events: what a process and its threads are called, and in which order they are shown."""
    found = [_metadata("process_name", kind, 0, name=name), _metadata("process_sort_index", kind, 0, sort_index=kind)]
    for at, stream in enumerate(streams):
        found += [_metadata("thread_name", kind, at, name=stream)]
        found += [_metadata("thread_sort_index", kind, at, sort_index=at)]
    return found


def _metadata(what: str, process: int, thread: int, **said: str | int) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": said}


def _complete(event: Event, count: int, thread: int, begin: float) -> dict[str, Any]:
    # Whole nanoseconds: ends and starts that are equal stay equal, or viewers see one event inside the other.
    start = round((event.start - begin) * 1e9)
    end = round((event.start - begin + event.seconds) * 1e9)
    return {
        "name": event.name,
        "cat": event.category,
        "ph": "X",
        "pid": event.kind,
        "tid": thread,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": {"bytes": event.bytes, "flops": event.flops, **({"events": count} if count > 1 else {})},
    }
