"""What fused kernels share: no score is stored, and the backward pass makes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.model.attention import AttentionKernel
from foretell.model.operator import OperatorPart, Sizes, Widths
from foretell.units import Quantity, ceil_log2

if TYPE_CHECKING:
    from foretell.model.operators.attention import Attention


class FusedKernel(AttentionKernel, frozen=True):
    """One kernel forward, three backward."""

    def forward(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        products = of.products(n, 1, 1)
        read, written = of.bytes_of(("q", "k", "v"), n, width), of.bytes_of(("y",), n, width)
        depth = ceil_log2(n["qk"]) + ceil_log2(n["key"]) * 2
        return OperatorPart(2 * products, 5 * of.scores(n), read, written, 1, 1, products, depth)

    def input_gradient(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        products = of.products(n, 3, 2)  # the scores again; dv, dp over value; dq, dk over qk
        read = of.bytes_of(("q", "k", "v", "y"), n, width) + of.bytes_of(("y",), n, width)
        written = of.bytes_of(("q", "k", "v"), n, width)
        depth = ceil_log2(n["value"]) + ceil_log2(n["key"]) + ceil_log2(n["query"])
        return OperatorPart(2 * products, 8 * of.scores(n), read, written, 3, 3, products, depth)

    def made_again(self, of: Attention, n: Sizes) -> Quantity:
        return 2 * of.products(n, 1, 0)

    def bias_added(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        return OperatorPart(vector=of.scores(n), read=of.bytes_of(("bias",), n, width))

    def bias_summed(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        bias, scores = of.bytes_of(("bias",), n, width), of.scores(n)
        made = scores * width["q"]  # each sample's are written, and read to be summed
        return OperatorPart(0, scores, made, bias + made, 1, 1, scores, ceil_log2(n["sample"]))

    def keeps(self, of: Attention) -> tuple[str, ...]:
        return ("q", "k", "v", "bias", "y", "logsumexp")

    def extras(self, of: Attention) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"logsumexp": ((*of.outer, "kv_head", "share", "query"), "fp32")}
