"""Flash attention: tiles of scores that never leave the multiprocessor."""

from __future__ import annotations

from foretell.model.attentions._fused import FusedKernel


class Flash(FusedKernel, frozen=True):
    summary = "tiles of scores that are never stored; 16 bits, no bias, heads may share keys and values"
    references = ("Dao et al. 2022, arXiv 2205.14135", "Dao 2023, arXiv 2307.08691")
    half_only = True
    takes_bias = False
    otherwise = "efficient"
    shares_heads = True


KERNEL = Flash()
