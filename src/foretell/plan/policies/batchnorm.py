"""Batch normalisation: over the samples of one rank, or of all ranks that share the batch."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Option, WordChoice


class BatchNorm(Policy, frozen=True, kw_only=True, tag="batchnorm"):
    """Whether the statistics of batch normalisation are those of all ranks. Usually each has its own."""

    word: ClassVar[str] = "batchnorm"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 90
    summary: ClassVar[str] = "batch normalisation over the samples of all ranks"
    references: ClassVar[tuple[str, ...]] = (
        "Ioffe and Szegedy 2015 (batch normalisation), arXiv 1502.03167",
        "Peng et al. 2018 (MegDet, across ranks), arXiv 1711.07240",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("synchronised", {"syncbn": True}),)
    example: ClassVar[str] = "+syncbn"

    synchronised: bool = False
