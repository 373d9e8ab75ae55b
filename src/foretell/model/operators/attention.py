"""Attention as one operator, with a rule per kernel for work, traffic and what is kept.

Kernels: `flash` and `efficient` never store the score matrix and compute it again in the
backward pass; `math` stores it. Query heads come in groups that share a key and value head.
A bias may be added to the scores (relative positions, masks); `flash` takes none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.errors import BadInput
from foretell.model.dims import Dim
from foretell.model.operator import NOTHING, Need, Operator, Part, Sizes, Widths
from foretell.units import Quantity, at_least, ceil_log2, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value

KERNELS = ("flash", "efficient", "math")


class Attention(Operator, frozen=True, tag="attention"):
    """y = softmax(q k^T / sqrt(qk)) v for every sample and head."""

    kernel: str = "flash"
    causal: bool = False
    window: int = 0  # keys that a query may look back on; 0 is all of them
    dropout: bool = False
    places: bool = False  # the bias differs between the places (windows) of a sample
    fixed_bias: bool = False  # the bias needs no gradient (a mask, or distances with fixed slopes)

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "q": ("sample", "place", "kv_head", "share", "query", "qk"),
        "k": ("sample", "place", "kv_head", "key", "qk"),
        "v": ("sample", "place", "kv_head", "key", "value"),
        "bias": ("place", "kv_head", "share", "query", "key"),
        "y": ("sample", "place", "kv_head", "share", "query", "value"),
    }

    def elements(self, operand: str, n: Sizes) -> Quantity:
        return product(n[loop] for loop in self.spans[operand] if loop in n)

    def scores(self, n: Sizes) -> Quantity:
        """Elements of the score matrices, masked ones included."""
        return n["sample"] * n.get("place", 1) * n["kv_head"] * n["share"] * n["query"] * n["key"]

    def density(self, n: Sizes) -> Quantity:
        """The share of scores that a kernel which skips masked tiles computes."""
        seen = 1 / at_least(n["key"] / self.window, 1) if self.window else 1.0  # of the keys, by one query
        return seen * (1 - seen / 2) if self.causal else seen

    def _products(self, n: Sizes, over_qk: int, over_value: int) -> Quantity:
        return self.scores(n) * (over_qk * n["qk"] + over_value * n["value"])

    def forward(self, n: Sizes, width: Widths) -> Part:
        products = self._products(n, 1, 1)
        traffic = self.bytes_of(("q", "k", "v"), n, width)
        score_bytes = self.scores(n) * width["q"] if self.kernel == "math" else 0
        passes = 7 if self.dropout else 4  # product out, scale and mask, softmax in and out, in
        depth = ceil_log2(n["qk"]) + ceil_log2(n["key"]) * 2
        return self._bias_added(n, width) + Part(
            2 * products,
            5 * self.scores(n),
            traffic + (passes // 2) * score_bytes,
            self.bytes_of(("y",), n, width) + (passes - passes // 2) * score_bytes,
            6 if self.kernel == "math" else 1,
            4 if self.kernel == "math" else 1,
            products,
            depth,
        )

    def input_gradient(self, n: Sizes, width: Widths) -> Part:
        # dv, dp over value; dq, dk over qk; kernels that kept no scores make them again
        products = self._products(n, 2 if self.kernel == "math" else 3, 2)
        read = self.bytes_of(("q", "k", "v", "y"), n, width) + self.bytes_of(("y",), n, width)
        score_bytes = self.scores(n) * width["q"] if self.kernel == "math" else 0
        passes = 8 if self.dropout else 6
        depth = ceil_log2(n["value"]) + ceil_log2(n["key"]) + ceil_log2(n["query"])
        return self._bias_summed(n, width) + Part(
            2 * products,
            8 * self.scores(n),
            read + (passes // 2) * score_bytes,
            self.bytes_of(("q", "k", "v"), n, width) + (passes // 2) * score_bytes,
            8 if self.kernel == "math" else 3,
            6 if self.kernel == "math" else 3,
            products,
            depth,
        )

    def _bias_added(self, n: Sizes, width: Widths) -> Part:
        """What the bias costs in the forward pass: a pass over the scores where they are stored."""
        if "bias" not in width:
            return NOTHING
        bias = self.bytes_of(("bias",), n, width)
        if self.kernel != "math":
            return Part(vector=self.scores(n), read=bias)
        score_bytes = self.scores(n) * width["q"]
        return Part(0, self.scores(n), score_bytes + bias, score_bytes, 1)

    def _bias_summed(self, n: Sizes, width: Widths) -> Part:
        """The gradient of the bias: that of the scores, summed over the samples."""
        if "bias" not in width or self.fixed_bias:
            return NOTHING
        bias = self.bytes_of(("bias",), n, width)
        score_bytes = self.scores(n) * width["q"]
        written = bias if self.kernel == "math" else bias + score_bytes  # a fused kernel writes each sample's
        return Part(0, self.scores(n), score_bytes, written, 1, 1, self.scores(n), ceil_log2(n["sample"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        if self.kernel == "math":
            kept = ("scaled_q", "scaled_k", "repeated_v", "probabilities")
            return (*kept, "mask", "dropped") if self.dropout else kept
        return ("q", "k", "v", "bias", "y", "logsumexp")

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        place = ("sample", *(("place",) if self.places else ()))
        scores = (*place, "kv_head", "share", "query", "key")
        return {
            "logsumexp": (scores[:-1], "fp32"),
            "probabilities": (scores, "same"),
            "mask": (scores, "bool"),
            "dropped": (scores, "same"),
            "scaled_q": ((*place, "kv_head", "share", "query", "qk"), "same"),
            # the math path repeats shared heads before it multiplies
            "scaled_k": ((*place, "kv_head", "share", "key", "qk"), "same"),
            "repeated_v": ((*place, "kv_head", "share", "key", "value"), "same"),
        }

    def need(self, loop: str) -> Need:
        return {"key": Need.GATHER, "qk": Need.SUM}.get(loop, Need.NOTHING)


def attention(
    g: Builder,
    q: Value,
    k: Value,
    v: Value,
    *,
    causal: bool = False,
    window: int = 0,
    kernel: str = "flash",
    dropout: float = 0.0,
    bias: Value | None = None,
) -> Value:
    """Attention of q[sample, head, sequence, head_dim] over k and v with as many or fewer heads.

    `bias[head, query, key]` is added to the scores of every sample; with a dim before these it
    differs along the last of q's dims before the head (the windows of an image).
    """
    if kernel not in KERNELS:
        raise BadInput(f"no attention kernel is called {kernel!r}", fix=", ".join(KERNELS))
    if kernel == "flash" and bias is not None:
        raise BadInput("the flash kernel adds no bias to the scores", fix="attention=math or attention=efficient")
    *sample, head, query, qk = q.dims
    *_, kv_head, key, _ = k.dims
    if head.size % kv_head.size:
        raise BadInput(f"{head.size} query heads cannot share {kv_head.size} key and value heads evenly")
    places = sample[len(sample) - (len(bias.dims) - 3) :] if bias else []
    loops = {
        "sample": tuple(sample[: len(sample) - len(places)]),
        **({"place": tuple(places)} if places else {}),
        "kv_head": (kv_head,),
        "share": (Dim("share", head.size // kv_head.size),),
        "query": (query,),
        "key": (Dim("key", key.size),),
        "qk": (qk,),
        "value": (v.dims[-1],),
    }
    fixed = bias is not None and not bias.needs_gradient
    operator = Attention(kernel, causal, window, dropout > 0, bool(places), fixed)
    inputs = {"q": q, "k": k, "v": v, **({"bias": bias} if bias else {})}
    return g.apply(operator, loops, inputs, (*sample, head, query, v.dims[-1]))
