"""A trace of torch.profiler (Chrome's format) of one rank: kernels, messages that nothing hides, and gaps."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.files import decode_json
from foretell.oracle.anchors import COMPUTE, EXPOSED, IDLE, Anchor

SUMMARY = "a trace that torch.profiler exported, with kernels of a GPU"

KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
MESSAGES: Final = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|sendrecv", re.I)
STEP: Final = re.compile(r"ProfilerStep#\d+")
MICROSECOND: Final = 1e-6

Span: TypeAlias = tuple[float, float]
Microseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]


class TraceEvent(msgspec.Struct, frozen=True):
    """What is read of an event; `ts` and `dur` are of spans, which have the phase X."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: Microseconds = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0, le=1e18)] = 0.0

    @property
    def span(self) -> Span:
        return self.ts, self.ts + self.dur


class Trace(msgspec.Struct, frozen=True):
    """Chrome's format, as far as it counts."""

    events: tuple[TraceEvent, ...] = msgspec.field(name="traceEvents")


def read(text: str, path: Path) -> Anchor | None:
    if '"traceEvents"' not in text:
        return None
    trace = decode_json(text, Trace, "whole trace", path, SUMMARY)
    events = [event for event in trace.events if event.ph == "X"]
    kernels = [event for event in events if event.cat in KERNELS]
    if not kernels:
        raise BadInput("the trace has no kernels of a GPU", where=str(path), fix="profile with ProfilerActivity.CUDA")
    steps = sorted({event.span for event in events if _is_step(event)}) or [_whole(kernels)]
    messages = merged(event.span for event in kernels if MESSAGES.search(event.name))
    compute = merged(event.span for event in kernels if not MESSAGES.search(event.name))
    seen = [_parts(step, compute, messages) for step in steps[1:] or steps]  # the first step warms up
    parts = {name: statistics.median(one[name] for one in seen) for name in (COMPUTE, EXPOSED, IDLE)}
    if not sum(parts.values()) > 0:
        raise BadInput("no step of the trace takes any time", where=str(path), fix=SUMMARY)
    return Anchor(form="profiler trace", step_seconds=sum(parts.values()), parts=parts)


def _is_step(event: TraceEvent) -> bool:
    """Steps as the device saw them would have gaps between them: the host's marks have none."""
    return bool(STEP.match(event.name)) and event.cat in ("user_annotation", "cpu_op", "")


def _whole(events: Iterable[TraceEvent]) -> Span:
    spans = [event.span for event in events]
    return min(start for start, _ in spans), max(end for _, end in spans)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The time that any of them covers, as spans that do not overlap."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _parts(step: Span, compute: Sequence[Span], messages: Sequence[Span]) -> dict[str, float]:
    """Seconds of one step with kernels, with messages alone, and with neither."""
    kernels = _covered(compute, step)
    either = _covered(merged([*compute, *messages]), step)
    length = step[1] - step[0]
    found = {COMPUTE: kernels, EXPOSED: either - kernels, IDLE: length - either}
    return {name: microseconds * MICROSECOND for name, microseconds in found.items()}


def _covered(spans: Iterable[Span], within: Span) -> float:
    return sum(max(0.0, min(end, within[1]) - max(start, within[0])) for start, end in spans)
