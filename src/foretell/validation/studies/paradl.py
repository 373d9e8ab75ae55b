"""The oracle paper's own figures of measured strategies (Kahira et al. 2021, arXiv 2104.09075, Figures 3 and 4).

Seconds were read off bars, so they are good to two or three digits; those of pipelines are of an epoch, in segments
that are not stated. 64 samples for each ResNet, 32 for VGG16, one volume a node for CosmoFlow, whose first two
convolutions are split. Chainer on ABCI, Adam, nothing recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from foretell.validation.study import (
    Line,
    MeasuredRun,
    NotScored,
    Unmapped,
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
GROUP: Final = 4  # ranks of a node, which split filters or images in the hybrids


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every bar."""
    return mapped(((line["id"], line) for line in lines), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    ranks, strategy, model = whole(line, "gpus"), stated(line, "strategy"), stated(line, "model")
    if strategy == "pipeline":
        raise Unmapped("the segments of a pipeline are not stated")
    return row(
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


def _axes(strategy: str, model: str, ranks: int) -> tuple[str, ...]:
    alone = {"data": "dp", "filter": "filter", "channel": "channel"}
    if strategy in alone:
        return (f"{alone[strategy]}{ranks}",)
    inner = strategy.removeprefix("data+")
    part = "[CONV1..APOOL2]" if model == "CosmoFlow" else ""
    return f"dp{ranks // GROUP}", f"{inner}{GROUP}{part}"
