"""Attention written out: two products with the score matrix between them, stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.model.attention import AttentionKernel
from foretell.model.operator import OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.operators.attention import Attention


class Math(AttentionKernel, frozen=True):
    summary = "two products with the score matrix between them, which is stored"
    references = ("Vaswani et al. 2017, arXiv 1706.03762",)
    heads_outside = True

    def forward(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        products = of.products(n, 1, 1)
        score_bytes = of.scores(n) * width["q"]
        passes = 7 if of.dropout else 4  # product out, scale and mask, softmax in and out, in
        depth = ceil_log2(n["qk"]) + ceil_log2(n["key"]) * 2
        return OperatorPart(
            2 * products,
            5 * of.scores(n),
            of.bytes_of(("q", "k", "v"), n, width) + (passes // 2) * score_bytes,
            of.bytes_of(("y",), n, width) + (passes - passes // 2) * score_bytes,
            6,
            4,
            products,
            depth,
        )

    def input_gradient(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        products = of.products(n, 2, 2)  # dv, dp over value; dq, dk over qk
        score_bytes = of.scores(n) * width["q"]
        passes = 8 if of.dropout else 6
        read = of.bytes_of(("q", "k", "v", "y"), n, width) + of.bytes_of(("y",), n, width)
        depth = ceil_log2(n["value"]) + ceil_log2(n["key"]) + ceil_log2(n["query"])
        return OperatorPart(
            2 * products,
            8 * of.scores(n),
            read + (passes // 2) * score_bytes,
            of.bytes_of(("q", "k", "v"), n, width) + (passes // 2) * score_bytes,
            8,
            6,
            products,
            depth,
        )

    def bias_added(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        score_bytes = of.scores(n) * width["q"]
        return OperatorPart(0, of.scores(n), score_bytes + of.bytes_of(("bias",), n, width), score_bytes, 1)

    def bias_summed(self, of: Attention, n: Sizes, width: Widths) -> OperatorPart:
        scores = of.scores(n)
        bias = of.bytes_of(("bias",), n, width)
        return OperatorPart(0, scores, scores * width["q"], bias, 1, 1, scores, ceil_log2(n["sample"]))

    def keeps(self, of: Attention) -> tuple[str, ...]:
        kept = ("scaled_q", "scaled_k", "repeated_v", "probabilities")
        return (*kept, "mask", "dropped") if of.dropout else kept

    def extras(self, of: Attention) -> dict[str, tuple[tuple[str, ...], str]]:
        heads = (*of.outer, "kv_head", "share")
        return {
            "probabilities": ((*heads, "query", "key"), "same"),
            "mask": ((*heads, "query", "key"), "bool"),
            "dropped": ((*heads, "query", "key"), "same"),
            "scaled_q": ((*heads, "query", "qk"), "same"),
            "scaled_k": ((*heads, "key", "qk"), "same"),  # shared heads are repeated before they are multiplied
            "repeated_v": ((*heads, "key", "value"), "same"),
        }


KERNEL = Math()
