"""Memory-efficient attention: as flash, for every type and with a bias."""

from __future__ import annotations

from foretell.model.attentions._fused import FusedKernel


class Efficient(FusedKernel, frozen=True):
    summary = "as flash, for every type and with a bias; heads that share keys and values are repeated"
    references = ("Rabe, Staats 2021, arXiv 2112.05682",)


KERNEL = Efficient()
