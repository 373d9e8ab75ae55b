"""GPT-OSS: experts with biases, windows in every second layer, and a sink of attention for each head."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.attention import attention_kernel
from foretell.model.build import Builder, Value
from foretell.model.family import Count, Index
from foretell.model.operators.attention import Locally, attention
from foretell.model.zoo._decoder import joined_heads
from foretell.model.zoo.mixture import Mixture


class GptOss(Mixture, frozen=True, kw_only=True):
    """Mixture's frame; the softmax over scores has one score more a head, and that over experts only those chosen."""

    references: ClassVar[tuple[str, ...]] = ("OpenAI 2025 (gpt-oss-120b and gpt-oss-20b), arXiv 2508.10925",)

    layers: Count = 36
    hidden: Count = 2880
    heads: Count = 64
    kv_heads: Index = 8
    head_dim: Index = 64
    ffn: Index = 2880
    vocab: Count = 201088
    seq: Count = 4096
    theta: float = 150000.0
    qkv_bias: bool = True
    out_bias: bool = True
    window: Index = 128
    global_every: Index = 2
    experts: Count = 128
    top_k: Count = 4
    score: str = "chosen"
    expert_bias: bool = True
    attention: str = "local"

    def check(self) -> None:
        super().check()
        if not attention_kernel(self.attention).local:
            raise BadInput(f"the {self.attention} kernel has no sinks", fix="attention=local")

    def attend_locally(self, g: Builder, parts: tuple[Value, Value, Value], window: int) -> Value:
        sink = g.parameter("sink", (parts[0].dims[1],))
        return joined_heads(
            g, attention(g, *parts, causal=True, kernel=self.attention, locally=Locally(window, sink=sink))
        )


PRESETS = {
    "gpt_oss": GptOss(),
    "gpt-oss-20b": GptOss(layers=24, experts=32),
    "gpt-oss-120b": GptOss(),
}
