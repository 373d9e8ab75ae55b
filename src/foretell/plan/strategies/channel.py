"""Channel parallelism: every rank takes some of the inputs (channels) of each convolution and dense layer."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.strategies._weight_split import WeightSplit


class Channel(WeightSplit, frozen=True, kw_only=True, tag="channel"):
    """Some of the inputs (channels) of each layer on each rank."""

    word: ClassVar[str] = "channel"
    summary: ClassVar[str] = "every rank takes some of the inputs (channels) of each layer"
    example: ClassVar[str] = "channel4"
    dim: ClassVar[str] = "in"
