"""A trace of torch.profiler (Chrome's format) of one rank: kernels, messages that nothing hides, and gaps."""

from __future__ import annotations

import statistics
from pathlib import Path

from foretell.errors import BadInput
from foretell.oracle.anchors import COMPUTE, EXPOSED, IDLE, Anchor
from foretell.oracle.traces import kineto, settled

SUMMARY = "a trace that torch.profiler exported, with kernels of a GPU"


def read(text: str, path: Path) -> Anchor | None:
    raw = kineto.of_text(text, path)
    if raw is None:
        return None
    if not raw.on_device:
        raise BadInput("the trace has no kernels of a GPU", where=str(path), fix="profile with ProfilerActivity.CUDA")
    seen = [(one.seconds - one.exposed - one.idle, one.exposed, one.idle) for one in settled(raw, path)]
    compute, exposed, idle = map(statistics.median, zip(*seen, strict=True))
    parts: dict[str, float] = {COMPUTE: compute, EXPOSED: exposed, IDLE: idle}
    return Anchor(form="profiler trace", step_seconds=sum(parts.values()), parts=parts)
