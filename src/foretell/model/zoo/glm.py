"""GLM-4.5 and MiniMax-M2: experts by their own sigmoid, corrected for the load, and heads that turn by half.

Counts are those of the model itself, without the extra layer that predicts a second token; corrections of the router
are a buffer, as in DeepSeek.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.family import Count, Index
from foretell.model.zoo.mixture import Mixture


class Glm(Mixture, frozen=True, kw_only=True):
    """Mixture's frame with the numbers of GLM-4.5-Air."""

    references: ClassVar[tuple[str, ...]] = (
        "GLM-4.5 Team 2025, arXiv 2508.06471",
        "MiniMax 2025 (MiniMax-M2), its model card and configuration",
    )

    layers: Count = 46
    hidden: Count = 4096
    heads: Count = 96
    kv_heads: Index = 8
    head_dim: Index = 128
    rotary_dim: Index = 64
    vocab: Count = 151552
    seq: Count = 4096
    theta: float = 1e6
    qkv_bias: bool = True
    ffn: Index = 1408
    experts: Count = 128
    top_k: Count = 8
    score: str = "sigmoid"
    corrected: bool = True
    shared_ffn: Index = 1408
    first_dense: Index = 1
    dense_ffn: Index = 10944


PRESETS = {
    "glm": Glm(),
    "glm-4.5-air": Glm(),
    "glm-4.5": Glm(
        layers=92, hidden=5120, ffn=1536, experts=160, shared_ffn=1536, first_dense=3, dense_ffn=12288,
        qk_norm=True, routing_scale=2.5,
    ),
    "minimax-m2": Glm(
        layers=62, hidden=3072, heads=48, vocab=200064, theta=5e6, qkv_bias=False, wide_norm=True, ffn=1536,
        experts=256, shared_ffn=0, first_dense=0, dense_ffn=0,
    ),
}  # fmt: skip
