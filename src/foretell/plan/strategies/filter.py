"""Filter parallelism: every rank takes some of the outputs (filters) of each convolution and dense layer."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.strategies._weight_split import WeightSplit


class Filter(WeightSplit, frozen=True, kw_only=True, tag="filter"):
    """Some of the outputs (filters) of each layer on each rank."""

    word: ClassVar[str] = "filter"
    summary: ClassVar[str] = "every rank takes some of the outputs (filters) of each layer"
    example: ClassVar[str] = "filter4"
    dim: ClassVar[str] = "out"
