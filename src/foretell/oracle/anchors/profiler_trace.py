"""A trace of torch.profiler (Chrome's format) of one rank: kernels, messages that nothing hides, and gaps."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from foretell.errors import BadInput
from foretell.oracle.anchors import COMPUTE, EXPOSED, IDLE, Anchor

SUMMARY = "a trace that torch.profiler exported, with kernels of a GPU"

KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
MESSAGES: Final = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|sendrecv", re.I)
STEP: Final = re.compile(r"ProfilerStep#\d+")
MICROSECOND: Final = 1e-6

Span: TypeAlias = tuple[float, float]


def read(text: str, path: Path) -> Anchor | None:
    if '"traceEvents"' not in text:
        return None
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        raise BadInput(f"the trace is cut off: {problem}", where=str(path), fix=SUMMARY) from None
    events = [cast("dict[str, Any]", event) for event in content["traceEvents"] if event.get("ph") == "X"]
    kernels = [event for event in events if event.get("cat") in KERNELS]
    if not kernels:
        raise BadInput("the trace has no kernels of a GPU", where=str(path), fix="profile with ProfilerActivity.CUDA")
    steps = sorted({_span(event) for event in events if _is_step(event)}) or [_whole(kernels)]
    messages = merged(_span(event) for event in kernels if MESSAGES.search(str(event.get("name", ""))))
    compute = merged(_span(event) for event in kernels if not MESSAGES.search(str(event.get("name", ""))))
    seen = [_parts(step, compute, messages) for step in steps[1:] or steps]  # the first step warms up
    parts = {name: statistics.median(one[name] for one in seen) for name in (COMPUTE, EXPOSED, IDLE)}
    return Anchor(form="profiler trace", step_seconds=sum(parts.values()), parts=parts)


def _is_step(event: dict[str, Any]) -> bool:
    """Steps as the device saw them would have gaps between them: the host's marks have none."""
    return bool(STEP.match(str(event.get("name", "")))) and event.get("cat") in ("user_annotation", "cpu_op", None)


def _span(event: dict[str, Any]) -> Span:
    start = float(event["ts"])
    return start, start + float(event.get("dur", 0.0))


def _whole(events: Iterable[dict[str, Any]]) -> Span:
    spans = [_span(event) for event in events]
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
