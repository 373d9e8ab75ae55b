"""A trace that torch.profiler exported (Chrome's format): a GPU's kernels, or the operators of a processor's rank.

NCCL's kernels are messages, and so are the spans that gloo's threads mark (`gloo:all_reduce`). Steps are those that
`profiler.step()` marks. The rank stands under `distributedInfo`, where there is a process group.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.files import decode_json, read_bytes, read_head, shown
from foretell.oracle.traces import AROUND, MESSAGES, SQLITE, RawTrace, TracedWork

SUMMARY = "a trace of torch.profiler: prof.export_chrome_trace('rank0.json')"

ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
ON_HOST: Final = "cpu_op"
MARKS: Final = ("user_annotation", "cpu_op", "")
STEP: Final = re.compile(r"ProfilerStep#\d+")
MICROSECOND: Final = 1e-6
ZIPPED: Final = b"\x1f\x8b"
LARGEST: Final = 2**31
"""Bytes of a trace that is unpacked, at most."""

Microseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]


class KinetoEvent(msgspec.Struct, frozen=True):
    """What is read of an event."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Microseconds = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0, le=1e18)] = 0.0

    @property
    def busy(self) -> TracedWork:
        start = self.ts * MICROSECOND
        return TracedWork(self.name, f"{self.pid} {self.tid}", start, start + self.dur * MICROSECOND)


class KinetoTrace(msgspec.Struct, frozen=True):
    """Chrome's format, as far as it counts."""

    events: tuple[KinetoEvent, ...] = msgspec.field(name="traceEvents")
    distributed: dict[str, Any] = msgspec.field(name="distributedInfo", default_factory=dict[str, Any])


def read(path: Path) -> list[RawTrace] | None:
    if read_head(path, "trace", len(SQLITE), fix=SUMMARY) == SQLITE:  # which may be larger than what is read at once
        return None
    content = read_bytes(path, "trace", fix=SUMMARY)
    if content[:2] == ZIPPED:
        content = _unpacked(content, path)
    found = of_text(content.decode("utf-8", "replace"), path)
    return [found] if found else None


def of_text(text: str, path: Path) -> RawTrace | None:
    """What a file says, None where it has another form."""
    if '"traceEvents"' not in text:
        return None
    trace = decode_json(text, KinetoTrace, "whole trace", path, SUMMARY)
    events = [event for event in trace.events if event.ph == "X"]
    device = [event for event in events if event.cat in ON_DEVICE]
    messages = [event for event in events if event.name.startswith("gloo:") and event.cat != ON_HOST]
    if device:
        messages = [event for event in device if MESSAGES.search(event.name)]
    kernels = device or [event for event in events if event.cat == ON_HOST]
    own = [one.busy for one in kernels if not MESSAGES.search(one.name) and not AROUND.search(one.name)]
    if not own:
        raise BadInput("the trace has no kernels and no operators", where=shown(path), fix=SUMMARY)
    steps = sorted({event.busy.span for event in events if STEP.match(event.name) and event.cat in MARKS})
    rank, world = (trace.distributed.get(name) for name in ("rank", "world_size"))
    return RawTrace(
        rank=rank if isinstance(rank, int) else None,
        kernels=own,
        messages=[one.busy for one in messages],
        steps=steps,
        world=world if isinstance(world, int) and world > 0 else 0,
        on_device=bool(device),
    )


def _unpacked(content: bytes, path: Path) -> bytes:
    import io

    try:
        with gzip.open(io.BytesIO(content)) as file:
            found = file.read(LARGEST + 1)
    except (OSError, EOFError) as problem:
        raise BadInput(f"not a whole archive: {problem}", where=shown(path), fix=SUMMARY) from None
    if len(found) > LARGEST:
        raise BadInput(f"more than {LARGEST:,} bytes unpacked", where=shown(path), fix="fewer steps")
    return found
