"""Mixtures of experts on Llama's frame (Mixtral, Qwen): every feed-forward is many, of which few run."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value
from foretell.model.family import Count, Index
from foretell.model.operators.elementwise import combine
from foretell.model.zoo._decoder import gated_feed_forward
from foretell.model.zoo._experts import Routing, active_parameters, expert_feed_forward, shared_feed_forward
from foretell.model.zoo.llama import Llama


class Mixture(Llama, frozen=True, kw_only=True):
    """`ffn` is the width of one expert, `shared_ffn` that of an expert for every token (0: none).

    Experts are in every `every`th layer from `first_dense` on; the others have one feed-forward of width
    `dense_ffn`. The rest says how a token finds its experts: see `Routing`.
    """

    references: ClassVar[tuple[str, ...]] = (
        "Jiang et al. 2024 (Mixtral), arXiv 2401.04088",
        "Yang et al. 2024 (Qwen2), arXiv 2407.10671",
        "Yang et al. 2025 (Qwen3), arXiv 2505.09388",
    )

    experts: Count = 8
    top_k: Count = 2
    normalized: bool = True
    shared_ffn: Index = 0
    shared_gate: bool = False
    every: Count = 1
    first_dense: Index = 0
    dense_ffn: Index = 0
    score: str = "softmax"
    routing_scale: float = 1.0
    corrected: bool = False
    weigh_before: bool = False
    expert_bias: bool = False

    def check(self) -> None:
        super().check()
        self.routing.check()
        if self.first_dense > self.layers:
            raise BadInput(f"first_dense={self.first_dense} of layers={self.layers}", fix=f"first_dense={self.layers}")
        if (self.every > 1 or self.first_dense > 0) != (self.dense_ffn > 0):
            said = f"every={self.every}, first_dense={self.first_dense} and dense_ffn={self.dense_ffn}"
            what = f"{said}: layers without experts have a width"
            raise BadInput(what, fix=f"every=2,dense_ffn={self.dense_ffn or 2 * self.inner}")
        if self.expert_bias and self.shared_ffn:
            raise BadInput("experts with biases have none beside them that all tokens share", fix="shared_ffn=0")

    @property
    def routing(self) -> Routing:
        """How tokens find their experts."""
        return Routing(
            self.experts, self.top_k, self.score, self.normalized, self.routing_scale, corrected=self.corrected,
            bias=self.expert_bias, before=self.weigh_before,
        )  # fmt: skip

    @property
    def active_parameters(self) -> int:
        """The parameters that one token meets."""
        sparse = sum(self.has_experts(layer) for layer in range(self.layers))
        return active_parameters(self, sparse, self.hidden, self.inner, self.routing, biased=self.expert_bias)

    def has_experts(self, layer: int) -> bool:
        return layer >= self.first_dense and (layer + 1) % self.every == 0

    def feed_forward(self, g: Builder, x: Value, layer: int) -> Value:
        if not self.has_experts(layer):
            return gated_feed_forward(g, x, self.dense_ffn)
        y = expert_feed_forward(g, x, self.routing, self.inner, biased=self.expert_bias)
        if self.shared_ffn:
            y = combine(g, y, shared_feed_forward(g, x, self.shared_ffn, gated=self.shared_gate))
        return y


def _qwen3(layers: int, hidden: int, heads: int, ffn: int) -> Mixture:
    return Mixture(
        layers=layers, hidden=hidden, heads=heads, kv_heads=4, head_dim=128, ffn=ffn, vocab=151936, seq=4096,
        qk_norm=True, theta=1e6, experts=128, top_k=8,
    )  # fmt: skip


PRESETS = {
    "mixture": Mixture(kv_heads=8, ffn=14336, theta=1e6, seq=4096),
    "mixtral-8x7b": Mixture(kv_heads=8, ffn=14336, theta=1e6, seq=4096),
    "mixtral-8x22b": Mixture(layers=56, hidden=6144, heads=48, kv_heads=8, ffn=16384, theta=1e6, seq=4096),
    "qwen2-57b-a14b": Mixture(
        layers=28, hidden=3584, heads=28, kv_heads=4, ffn=2560, vocab=151936, seq=4096, qkv_bias=True, theta=1e6,
        experts=64, top_k=8, normalized=False, shared_ffn=20480, shared_gate=True,
    ),
    "qwen3-30b-a3b": _qwen3(48, 2048, 32, 768),
    "qwen3-235b-a22b": _qwen3(94, 4096, 64, 1536),
}  # fmt: skip
