"""The oracle paper's own figures of measured strategies (Kahira et al. 2021, arXiv 2104.09075, Figures 3 and 4).

Seconds were read off bars, so they are good to two or three digits, and computation and communication of a bar to about
5 ms. 64 samples for each ResNet, 32 for VGG16, one volume a node for CosmoFlow, whose first two convolutions are split.
Chainer on ABCI, Adam, nothing recomputed. Pipelines are torchgpipe's; theirs are seconds of an epoch, in micro-batches
that are not stated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.plan.text import parse
from foretell.validation.study import (
    Line,
    MeasuredRun,
    NotScored,
    StepParts,
    mapped,
    meaning,
    real,
    row,
    stated,
    whole,
    written,
)

COLUMNS = frozenset({"id", "model", "strategy", "gpus", "samples", "projected_seconds", "measured_seconds"})

MODELS: Final = {
    "ResNet-50": "resnet50:image=226,strided_1x1=true",
    "ResNet-152": "resnet152:image=226,strided_1x1=true",
    "VGG16": "vgg16-paradl",
    "CosmoFlow": "cosmoflow512-paradl",
}
BATCHES: Final = {"ResNet-50": 64, "ResNet-152": 64, "VGG16": 32}
IMAGES: Final = 1_280_000  # of an epoch
SEGMENTS: Final = (4, 8, 16)
"""Micro-batches that a pipeline may have had: fewer leave four ranks idle half of the time, more are of few samples."""
GROUP: Final = 4  # ranks of a node, which split filters or images in the hybrids


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every bar."""
    return mapped(((line["id"], line) for line in lines), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    ranks, strategy, model = whole(line, "gpus"), stated(line, "strategy"), stated(line, "model")
    if strategy == "pipeline":
        return _pipeline(name, line, ranks, model)
    found = row(
        name,
        meaning(line, "model", MODELS),
        written(*_axes(strategy, model, ranks), "+fp32"),
        f"abci:{ranks}",
        batch=whole(line, "samples"),
        trainer="chainer",
        optimizer="adam",
        step_seconds=real(line, "measured_seconds"),
        claimed_seconds=real(line, "projected_seconds"),
        subsets=(strategy, model),
    )
    return msgspec.structs.replace(found, parts=_parts(line, "measured"), claimed_parts=_parts(line, "projected"))


def _pipeline(name: str, line: Line, ranks: int, model: str) -> MeasuredRun:
    """A pipeline of torchgpipe, in as many micro-batches as such batches are usually cut into."""
    batch = meaning(line, "model", BATCHES)
    share = batch / IMAGES
    plans = [f"pp{ranks}:gpipe +m{count} +fp32" for count in SEGMENTS] if ranks > 1 else ["dp1 +fp32"]
    found = row(
        name,
        meaning(line, "model", MODELS),
        plans[0],
        f"abci:{ranks}",
        batch=batch,
        trainer="torchgpipe",
        optimizer="adam",
        step_seconds=share * real(line, "measured_seconds"),
        claimed_seconds=share * real(line, "projected_seconds"),
        subsets=("pipeline", model),
    )
    assumed = (f"{', '.join(map(str, SEGMENTS))} micro-batches",) if ranks > 1 else ()
    return msgspec.structs.replace(found, others=tuple(map(parse, plans[1:])), assumed=assumed)


def _parts(line: Line, whose: str) -> StepParts | None:
    """Computation and communication of a bar of Figure 3, where they are told apart."""
    compute, messages = (real(line, f"{whose}_{part}_seconds") for part in ("compute", "communication"))
    return StepParts(compute, messages) if compute and messages else None


def _axes(strategy: str, model: str, ranks: int) -> tuple[str, ...]:
    alone = {"data": "dp", "filter": "filter", "channel": "channel"}
    if strategy in alone:
        return (f"{alone[strategy]}{ranks}",)
    inner = strategy.removeprefix("data+")
    part = "[CONV1..APOOL2]" if model == "CosmoFlow" else ""
    return f"dp{ranks // GROUP}", f"{inner}{GROUP}{part}"
