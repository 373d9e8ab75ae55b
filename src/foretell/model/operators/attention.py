"""Attention as one operator: what is the same for every way to attend (`attentions/`), and how to add it to a graph.

Query heads come in groups that share a key and value head. A bias may be added to the scores (relative positions,
masks), where the kernel takes one. A sink is a score of each head that takes part in the softmax and has no value.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.model.attention import ATTENTIONS, AttentionKernel, attention_kernel
from foretell.model.dims import Dim
from foretell.model.operator import NOTHING, Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, ceil_log2, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Attention(Operator, frozen=True, tag="attention"):
    """y = softmax(q k^T / sqrt(qk)) v for every sample and head."""

    kernel: str = "flash"
    causal: bool = False
    window: int = 0  # keys that a query may look back on; 0 is all of them
    dropout: bool = False
    places: bool = False  # the bias differs between the places (windows) of a sample
    fixed_bias: bool = False  # the bias needs no gradient (a mask, or distances with fixed slopes)
    capped: bool = False  # scores go through cap * tanh(score / cap)

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "q": ("sample", "place", "kv_head", "share", "query", "qk"),
        "k": ("sample", "place", "kv_head", "key", "qk"),
        "v": ("sample", "place", "kv_head", "key", "value"),
        "bias": ("place", "kv_head", "share", "query", "key"),
        "sink": ("kv_head", "share"),
        "index": ("sample", "query", "chosen"),
        "y": ("sample", "place", "kv_head", "share", "query", "value"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("sink",)

    def elements(self, operand: str, n: Sizes) -> Quantity:
        return product(n[loop] for loop in self.spans[operand] if loop in n)

    def scores(self, n: Sizes) -> Quantity:
        """Elements of the score matrices, masked ones included."""
        return n["sample"] * n.get("place", 1) * n["kv_head"] * n["share"] * n["query"] * n["key"]

    @property
    def variant(self) -> AttentionKernel:
        """What this kernel does."""
        return attention_kernel(self.kernel)

    @property
    def priced_as(self) -> str:
        return self.variant.priced_as

    def evaluated(self) -> Operator:
        return msgspec.structs.replace(self, dropout=False)

    def density(self, n: Sizes) -> Quantity:
        """The share of scores that a kernel which skips masked tiles computes."""
        return self.variant.density(self, n)

    def made_again(self, n: Sizes) -> Quantity:
        return self.variant.made_again(self, n)

    def products(self, n: Sizes, over_qk: int, over_value: int) -> Quantity:
        """Multiply-adds of so many products over the features of keys, and over those of values."""
        return self.scores(n) * (over_qk * n["qk"] + over_value * n["value"])

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        bias = self.variant.bias_added(self, n, width) if "bias" in width else NOTHING
        return bias + self.variant.forward(self, n, width)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        bias = self.variant.bias_summed(self, n, width) if "bias" in width and not self.fixed_bias else NOTHING
        return bias + self.variant.input_gradient(self, n, width)

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Of the sinks: each row's share of them, times what its output and its gradient have in common."""
        y = self.elements("y", n)
        read, written = 2 * self.bytes_of(("y",), n, width), self.bytes_of(("sink",), n, width)
        return OperatorPart(0, 2 * y, read, written, 1, 1, y, ceil_log2(n["sample"] * n["query"] * n["value"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return self.variant.keeps(self)

    @property
    def outer(self) -> tuple[str, ...]:
        """Loops around the heads."""
        return ("sample", "place") if self.places else ("sample",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return self.variant.extras(self)

    def need(self, loop: str) -> Need:
        return self.variant.need(loop)


class Locally(NamedTuple):
    """What some kernels take besides: how far back to look (0: all), soft caps on scores, a sink a head, an index."""

    window: int = 0
    capped: bool = False
    sink: Value | None = None
    chosen: Value | None = None  # places of the keys that each query sees, for kernels that are told them


def attention(
    g: Builder,
    q: Value,
    k: Value,
    v: Value,
    *,
    causal: bool = False,
    kernel: str = "flash",
    dropout: float = 0.0,
    bias: Value | None = None,
    locally: Locally | None = None,
) -> Value:
    """Attention of q[sample, head, sequence, head_dim] over k and v with as many or fewer heads.

    `bias[head, query, key]` is added to the scores of every sample; with a dim before these it
    differs along the last of q's dims before the head (the windows of an image).
    """
    if bias is not None and not attention_kernel(kernel).takes_bias:
        biased = " or ".join(f"attention={name}" for name in ATTENTIONS if attention_kernel(name).takes_bias)
        raise BadInput(f"the {kernel} kernel adds no bias to the scores", fix=biased)
    window, capped, sink, index = locally or Locally()
    told = attention_kernel(kernel).chosen
    if told != (index is not None):
        what = f"{kernel} attention {'is told' if told else 'is not told'} which keys each query sees"
        raise BadInput(what, fix="attention=flash" if told else "attention=sparse")
    if locally and not told and not attention_kernel(kernel).local:
        local = " or ".join(f"attention={name}" for name in ATTENTIONS if attention_kernel(name).local)
        raise BadInput(f"the {kernel} kernel has no windows, sinks or soft caps of its own", fix=local)
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
    operator = Attention(kernel, causal, window, dropout > 0, bool(places), fixed, capped)
    inputs = {"q": q, "k": k, "v": v, **({"bias": bias} if bias else {}), **({"sink": sink} if sink else {})}
    if index:
        inputs["index"], loops["chosen"] = index, index.dims[-1:]
    return g.apply(operator, loops, inputs, (*sample, head, query, v.dims[-1]))
