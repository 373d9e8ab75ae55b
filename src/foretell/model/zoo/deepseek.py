"""DeepSeek: keys and values from a small latent vector, many narrow experts, a few for every token.

Counts are those of the model itself; `mtp=1` adds the layer that predicts a second token in training
(DeepSeek-V3 was trained with it, and its module is published beside the weights). The correction of the
router is a buffer: DeepSeek-V3 has 671,026,404,352 trained parameters and 58 x 256 corrections.

With `index_heads` each place sees the `index_top_k` earlier ones that small heads choose (DeepSeek-V3.2). What chooses
is trained by a loss of its own against the scores of attention, which is left out: its weights are held and run
forward, and no gradient reaches them, as in the class of transformers.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Index
from foretell.model.operators.attention import Locally, attention
from foretell.model.operators.elementwise import combine
from foretell.model.operators.layout import concatenate, split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import (
    Decoder,
    LayerContext,
    causal_attention,
    check_angles,
    gated_feed_forward,
    heads_outside,
    joined_heads,
)
from foretell.model.zoo._experts import Routing, active_parameters, expert_feed_forward, shared_feed_forward
from foretell.model.zoo._further_tokens import losses
from foretell.model.zoo._indexer import Indexer, index_of, turned


class DeepSeek(Decoder, frozen=True, kw_only=True):
    """Queries and keys have `head_dim` features of their own and `rotary_dim` that turn with the position.

    `kv_rank` and `query_rank` are the sizes of the latent vectors (0: queries come straight from the
    input), `value_dim` that of a value. The first `first_dense` layers have one feed-forward of
    width `ffn`; the others `experts` of width `expert_ffn` and `shared_experts` for every token. `mtp` is
    the number of further tokens predicted at every place, each by a layer of the latter kind.

    Keys are longer than values, which flash kernels do not take unless the values are padded, so the
    default is the memory-efficient one.
    """

    references: ClassVar[tuple[str, ...]] = (
        "DeepSeek-AI 2024 (DeepSeek-V2), arXiv 2405.04434",
        "DeepSeek-AI 2024 (DeepSeek-V3), arXiv 2412.19437",
        "DeepSeek-AI 2025 (DeepSeek-V3.2), arXiv 2512.02556",
        "Kimi Team 2025 (Kimi K2), arXiv 2507.20534",
    )

    layers: Count = 61
    hidden: Count = 7168
    heads: Count = 128
    vocab: Count = 129280
    seq: Count = 4096
    attention: str = "efficient"
    query_rank: Index = 1536
    kv_rank: Count = 512
    head_dim: Count = 128
    rotary_dim: Count = 64
    value_dim: Count = 128
    ffn: Count = 18432
    first_dense: Index = 3
    experts: Count = 256
    top_k: Count = 8
    expert_ffn: Count = 2048
    shared_experts: Index = 1
    score: str = "sigmoid"
    normalized: bool = True
    routing_scale: float = 2.5
    groups: Count = 8
    top_groups: Count = 4
    group_best: Count = 2
    corrected: bool = True
    mtp: Index = 0
    index_heads: Index = 0
    index_dim: Count = 128
    index_top_k: Count = 2048

    def check(self) -> None:
        super().check()
        self.routing.check()
        check_angles(self.rotary_dim, self.rotary_dim)
        if self.first_dense > self.layers:
            raise BadInput(f"first_dense={self.first_dense} of layers={self.layers}", fix=f"first_dense={self.layers}")
        if self.attention == "flash" and self.head_dim + self.rotary_dim != self.value_dim:
            what = f"flash kernels want keys ({self.head_dim} + {self.rotary_dim}) as long as values ({self.value_dim})"
            raise BadInput(what, fix="attention=efficient or attention=math")

        if (self.attention == "sparse") != (self.index_heads > 0):
            what = f"attention={self.attention} with index_heads={self.index_heads}: an index goes with sparse alone"
            raise BadInput(what, fix="attention=sparse,index_heads=64, or attention=efficient,index_heads=0")
        if self.index_heads and not (self.query_rank and self.rotary_dim <= self.index_dim):
            what = f"an index of {self.index_dim} features reads a latent query and turns {self.rotary_dim} of them"
            raise BadInput(what, fix=f"query_rank=1536, index_dim={max(self.index_dim, self.rotary_dim)}")

    @property
    def routing(self) -> Routing:
        """How tokens find their experts."""
        return Routing(
            self.experts, self.top_k, self.score, self.normalized, self.routing_scale,
            self.groups, self.top_groups, self.group_best, self.corrected,
        )  # fmt: skip

    @property
    def rotary_features(self) -> int:
        return self.rotary_dim

    @property
    def active_parameters(self) -> int:
        """The parameters that one token meets."""
        sparse = self.layers - self.first_dense + self.mtp
        return active_parameters(self, sparse, self.hidden, self.expert_ffn, self.routing)

    def build(self, g: Builder, batch: int) -> None:
        if not self.mtp:
            super().build(g, batch)
            return
        losses(g, self, self.main(g, batch), self.mtp)

    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        latent = self._latent_query(g, x)
        q = self._query(g, latent, context)
        k, v = self._key_and_value(g, x, context)
        parts = heads_outside(g, q), heads_outside(g, k), heads_outside(g, v)
        if self.index_heads:
            index = index_of(g, x, latent, context, Indexer(self.index_heads, self.index_dim, self.index_top_k))
            told = Locally(min(self.index_top_k, self.seq), chosen=index)
            y = joined_heads(g, attention(g, *parts, causal=True, kernel="sparse", locally=told))
        else:
            y = causal_attention(g, *parts, kernel=self.attention)
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], contract=2, bias=False)

    def feed_forward(self, g: Builder, x: Value, layer: int) -> Value:
        if layer < self.first_dense:
            return gated_feed_forward(g, x, self.ffn)
        y = expert_feed_forward(g, x, self.routing, self.expert_ffn)
        if self.shared_experts:
            y = combine(g, y, shared_feed_forward(g, x, self.shared_experts * self.expert_ffn))
        return y

    def _latent_query(self, g: Builder, x: Value) -> Value:
        """What queries are made from."""
        if not self.query_rank:
            return x
        with g.scope("query_down"):
            x = linear(g, x, dims(rank=self.query_rank), bias=False)
        with g.scope("query_norm"):
            return rms_norm(g, x)

    def _query(self, g: Builder, x: Value, context: LayerContext) -> Value:
        with g.scope("query"):
            q = linear(g, x, dims(head=self.heads, head_dim=self.head_dim + self.rotary_dim), bias=False)
        own, turning = split(g, q, "head_dim", (self.head_dim, self.rotary_dim))
        return concatenate(g, [own, turned(g, turning, context)], "head_dim")

    def _key_and_value(self, g: Builder, x: Value, context: LayerContext) -> tuple[Value, Value]:
        """One latent vector for all heads, and one turning key that they share."""
        with g.scope("kv_down"):
            both = linear(g, x, dims(rank=self.kv_rank + self.rotary_dim), bias=False)
        latent, turning = split(g, both, "rank", (self.kv_rank, self.rotary_dim))
        with g.scope("kv_norm"):
            latent = rms_norm(g, latent)
        with g.scope("kv"):
            kv = linear(g, latent, dims(head=self.heads, head_dim=self.head_dim + self.value_dim), bias=False)
        key, value = split(g, kv, "head_dim", (self.head_dim, self.value_dim))
        sample, sequence, head, _ = key.dims
        turning = view(g, turning, (sample, sequence, *dims(head=1, head_dim=self.rotary_dim)))
        turning = turned(g, turning, context)
        everywhere = view(g, turning, (sample, sequence, head, turning.dims[-1]), "expand")
        return concatenate(g, [key, everywhere], "head_dim"), value


PRESETS = {
    "deepseek": DeepSeek(),
    "deepseek-v2-lite": DeepSeek(
        layers=27, hidden=2048, heads=16, vocab=102400, query_rank=0, ffn=10944, first_dense=1, experts=64, top_k=6,
        expert_ffn=1408, shared_experts=2, score="softmax", normalized=False, routing_scale=1.0,
        groups=1, top_groups=1, group_best=1, corrected=False,
    ),
    "deepseek-v2": DeepSeek(
        layers=60, hidden=5120, heads=128, vocab=102400, ffn=12288, first_dense=1, experts=160, top_k=6,
        expert_ffn=1536, shared_experts=2, score="softmax", normalized=False, routing_scale=16.0,
        groups=8, top_groups=3, group_best=1, corrected=False,
    ),
    "deepseek-v3": DeepSeek(),
    "deepseek-v3.2": DeepSeek(index_heads=64, attention="sparse"),
    "kimi-k2": DeepSeek(
        heads=64, vocab=163840, experts=384, first_dense=1, groups=1, top_groups=1, routing_scale=2.827,
    ),
}  # fmt: skip
