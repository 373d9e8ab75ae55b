"""Fused attention to a window of earlier places, with sinks and soft caps: tiles outside the window are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.model.attentions._fused import FusedKernel
from foretell.model.operator import OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.operators.attention import Attention

CAP = 7
"""Operations of a soft cap on one score: scaled twice, and a tanh; its gradient takes as many."""


class LocalKernel(FusedKernel, frozen=True):
    summary = "as flash, for every type, with windows, sinks and soft caps; heads may share keys and values"
    references = ("Dong et al. 2024 (FlexAttention), arXiv 2412.05496", "Xiao et al. 2023 (sinks), arXiv 2309.17453")
    takes_bias = False
    shares_heads = True
    causal_only = True
    rotates = False
    local = True

    def forward(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        return super().forward(of, n, width) + _capped(of, n)

    def input_gradient(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        return super().input_gradient(of, n, width) + _capped(of, n)


def _capped(of: Attention, n: Sizes) -> OperatorPart:
    return OperatorPart(vector=CAP * of.scores(n)) if of.capped else OperatorPart()


KERNEL = LocalKernel()
