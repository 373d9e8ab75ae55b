"""How much each earlier place matters to each place, by a few small heads that share a key: what sparse attention asks.

DeepSeek-V3.2 (arXiv 2512.02556, section 2.1, equation 1). One kernel, of which the sum over heads alone is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class IndexScores(Operator, frozen=True, tag="index_scores"):
    """y[query, key] = sum over heads of g[query, head] relu(q[query, head] k[key]), for earlier keys alone."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "q": ("sample", "query", "head", "feature"),
        "k": ("sample", "key", "feature"),
        "g": ("sample", "query", "head"),
        "y": ("sample", "query", "key"),
    }
    together: ClassVar[tuple[tuple[str, str], ...]] = (("query", "key"),)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        scores = n["sample"] * n["query"] * n["head"] * n["key"]
        read, written = self.bytes_of(("q", "k", "g"), n, width), self.bytes_of(("y",), n, width)
        products = scores * (n["feature"] + 1)
        depth = ceil_log2(n["feature"]) + ceil_log2(n["head"])
        return OperatorPart(2 * products, scores, read, written, 1, 1, products, depth)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """None flows here: places are chosen by what comes out."""
        return OperatorPart()

    def need(self, loop: str) -> Need:
        return {"key": Need.GATHER, "feature": Need.SUM, "head": Need.SUM}.get(loop, Need.NOTHING)


def index_scores(g: Builder, q: Value, k: Value, weights: Value) -> Value:
    """q[sample, sequence, head, feature] against k[sample, sequence, feature], each head by weights[..., head]."""
    sample, query, head, feature = q.dims
    key = Dim("key", query.size)
    loops = {"sample": (sample,), "query": (query,), "head": (head,), "key": (key,), "feature": (feature,)}
    return g.apply(IndexScores(), loops, {"q": q, "k": k, "g": weights}, (sample, query, key), dtype="fp32")
