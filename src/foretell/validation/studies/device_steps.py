"""Training steps measured on one device, as JSON lines.

Keys: model batch seq|image precision optimizer compile channels_last recompute device, and the measured
fwd_ms bwd_ms opt_ms step_ms wall_ms peak_gib static_gib. `model` is in the zoo's words. `wall_ms` is
the step as a clock saw it, with the host; `step_ms` is the device's own count, used where there is no
clock. `peak_gib` is what tensors took at most. `recompute` is false, null, or a word of the plan grammar
(true is `block`); a step without the key is not scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretell.validation.hardware_words import cluster
from foretell.validation.study import (
    GIB,
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Unmapped,
    mapped,
    real,
    row,
    stated,
    whole,
    whole_or,
    written,
)

COLUMNS = frozenset({"model", "batch", "precision", "optimizer", "device", "step_ms"})

RECOMPUTE = {
    "": "",
    "none": "",
    "false": "",
    "attention": "+recompute:attention",
    "block": "+recompute:block",
    "true": "+recompute:block",
    "full": "+recompute:full",
}


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Steps of one rank."""
    return mapped(((f"{at}", line) for at, line in enumerate(lines, 1)), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    seconds = (real(line, "wall_ms") or real(line, "step_ms")) / 1e3
    peak = real(line, "peak_gib")
    if not seconds and not peak:
        raise Unmapped("nothing was measured")
    if "recompute" not in line:
        raise Unmapped("recompute is not stated")
    again = line["recompute"].lower()
    if again not in RECOMPUTE and not re.fullmatch(r"every\d+", again):
        raise Unmapped(f"recompute {line['recompute']} cannot be written in the plan grammar")
    recompute = RECOMPUTE.get(again, f"+recompute:{again}")
    compiled = line.get("compile", "").lower() in ("true", "1", "yes")
    layout = "channels last" if line.get("channels_last", "").lower() in ("true", "1", "yes") else ""
    trainer = "pytorch-compiled" if compiled else "pytorch-channels-last" if layout else "pytorch"
    model, image, seq = stated(line, "model"), whole_or(line, "image", 0), whole_or(line, "seq", 0)
    return row(
        name,
        _sized(model, image, seq),
        written("dp1", recompute, f"+{stated(line, 'precision')}"),
        cluster(stated(line, "device"), 1, 1).text,
        batch=whole(line, "batch"),
        trainer=trainer,
        optimizer=stated(line, "optimizer").lower(),
        sequence=seq,
        image=image,
        step_seconds=seconds,
        memory=[MeasuredPeak(peak * GIB, "allocated", "worst")] if peak else [],
        subsets=(re.split(r"[:0-9-]", model)[0], line["precision"], trainer, layout),
    )


def _sized(model: str, image: int, seq: int) -> str:
    """The model with the length or image of the step, where its words do not have it."""
    for field, size in (("seq", seq), ("image", image)):
        if size and not re.search(rf"[:,]{field}=", model):
            model = f"{model}{',' if ':' in model else ':'}{field}={size}"
    return model
