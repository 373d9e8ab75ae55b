"""Gemma 2 and 3, OLMo 2, GPT-OSS, GLM-4.5, MiniMax-M2, Llama 4, Kimi K2: where their fields are.

Layers that take turns are a list of words in newer files and a number in older ones; the zoo has every n-th layer see
everything, and what does not go by that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretell.model.importers.hf_fields import (
    CAUSAL,
    TORCH,
    Config,
    Fields,
    HfModelType,
    Source,
    count,
    fixed,
    flag,
    maybe,
    number,
    positions,
    shown,
    usual_sizes,
)
from foretell.model.importers.hf_llama import KINDS as LLAMA_KINDS
from foretell.model.zoo.gemma import Gemma
from foretell.model.zoo.glm import Glm
from foretell.model.zoo.gpt_oss import GptOss
from foretell.model.zoo.llama4 import Llama4
from foretell.model.zoo.olmo2 import Olmo2


def every_nth(key: str, usual: int, whole: Callable[[Any], bool], *numbers: str) -> Source:
    """Every how manieth layer `whole` says of in a list; without the list the number, which may be missing too."""

    def read(config: Config) -> int:
        key_of_number, said = config.get(*numbers, default=usual) if numbers else ("", usual)
        _, listed = config.get(key)
        if not isinstance(listed, list) or not listed:
            return usual if said is None else config.whole(key_of_number, said)
        items: list[Any] = listed  # pyright: ignore[reportUnknownVariableType]
        found = [at for at, item in enumerate(items) if whole(item)]
        if not found:
            return 0
        every = found[0] + 1
        if found != list(range(every - 1, len(items), every)):
            what = f"{key}: layers {shown(found)} see everything, and the zoo has every n-th of them"
            raise config.bad(key, what, fix=f"every {every}th; {TORCH}")
        return every

    return read


def _full(item: Any) -> bool:
    return item == "full_attention"


def _unturned(item: Any) -> bool:
    return item == 0


def _cap(key: str, usual: float) -> Source:
    """A soft cap, which null takes away."""

    def read(config: Config) -> float:
        _, value = config.get(key, default=usual)
        if value is None:
            return 0.0
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
            raise config.bad(key, f"{key} should be a number, not {shown(value)}", fix=str(usual or 30.0))
        return float(value)

    return read


def turning(usual: float, size: int = 0) -> Source:
    """Features of a head that turn: a number, or a share of the head's."""

    def read(config: Config) -> int:
        _, direct = config.get("rotary_dim")
        if direct is not None:
            return config.whole("rotary_dim", direct)
        share = number("partial_rotary_factor", default=usual)(config)
        head = maybe("head_dim", default=size)(config) or count("hidden_size", default=4096)(config) // count(
            "num_attention_heads", default=96
        )(config)
        if not 0 < share <= 1:
            what = f"partial_rotary_factor is {shown(share)}"
            raise config.bad("partial_rotary_factor", what, fix="a share from 0 to 1")
        return int(head * share) // 2 * 2

    return read


def _heads(kv_heads: int, head_dim: int, **default: int) -> Fields:
    return {
        **usual_sizes(**default),
        "kv_heads": maybe("num_key_value_heads", default=kv_heads),
        "head_dim": maybe("head_dim", default=head_dim),
        "tied": flag("tie_word_embeddings", default=False),
        "theta": number("rope_theta", default=10000.0),
        "qkv_bias": flag("attention_bias", default=False),
    }


def _gemma(kv_heads: int, window: int, every: int, caps: tuple[float, float], *, third: bool, **default: int) -> Fields:
    return {
        **_heads(kv_heads, 256, **default),
        "tied": flag("tie_word_embeddings", default=True),
        "theta": number("rope_theta", default=1e6 if third else 1e4),
        "local_theta": number("rope_local_base_freq", default=1e4) if third else fixed(0.0),
        "window": maybe("sliding_window", default=window),
        "global_every": every_nth("layer_types", every, _full, "sliding_window_pattern", "_sliding_window_pattern"),
        "qk_norm": fixed(third),
        "score_cap": _cap("attn_logit_softcapping", caps[0]),
        "logit_cap": _cap("final_logit_softcapping", caps[1]),
        "query_scale": count("query_pre_attn_scalar", default=256),
    }


_GEMMA2 = _gemma(
    4, 4096, 2, (50.0, 30.0), third=False, layers=26, hidden=2304, heads=8, ffn=9216, vocab=256000
)  # fmt: skip
_GEMMA3 = _gemma(4, 4096, 6, (0.0, 0.0), third=True, layers=26, hidden=2304, heads=8, ffn=9216, vocab=262208)
_GELU = {
    "hidden_activation": (("gelu_pytorch_tanh",), "the gate is counted as GELU by a tanh"),
    "attention_bias": ((False,), "the bias of attention's output layer is left out"),
}
_SAID = ("hidden_act", "cache_implementation")
_ONE_WAY = {"use_bidirectional_attention": (False,)}

_OLMO2: Fields = {
    **_heads(0, 0, layers=32, hidden=4096, heads=32, ffn=11008, vocab=50304),
}

_GPT_OSS: Fields = {
    **_heads(8, 64, layers=36, hidden=2880, heads=64, ffn=2880, vocab=201088),
    "theta": number("rope_theta", default=150000.0),
    "qkv_bias": flag("attention_bias", default=True),
    "out_bias": flag("attention_bias", default=True),
    "window": maybe("sliding_window", default=128),
    "global_every": every_nth("layer_types", 2, _full),
    "experts": count("num_local_experts", "num_experts", default=128),
    "top_k": count("num_experts_per_tok", "experts_per_token", default=4),
}

_WIDTH = count("moe_intermediate_size", default=1408)


def _shared(config: Config) -> int:
    return maybe("n_shared_experts", default=1)(config) * _WIDTH(config)


def _dense(config: Config) -> int:
    width = count("intermediate_size", default=10944)(config)
    return width if maybe("first_k_dense_replace", default=1)(config) else 0


_GLM: Fields = {
    **_heads(8, 0, layers=46, hidden=4096, heads=96, vocab=151552),
    "rotary_dim": turning(0.5),
    "qk_norm": flag("use_qk_norm", default=False),
    "ffn": _WIDTH,
    "experts": count("n_routed_experts", "num_experts", default=128),
    "top_k": count("num_experts_per_tok", default=8),
    "normalized": flag("norm_topk_prob", default=True),
    "routing_scale": number("routed_scaling_factor", default=1.0),
    "shared_ffn": _shared,
    "first_dense": maybe("first_k_dense_replace", default=1),
    "dense_ffn": _dense,
}
_MINIMAX_M2: Fields = {
    **_heads(8, 128, layers=62, hidden=3072, heads=48, ffn=1536, vocab=200064),
    "theta": number("rope_theta", default=5e6),
    "rotary_dim": turning(1.0, 128),
    "wide_norm": flag("use_qk_norm", default=True),
    "experts": count("num_local_experts", "num_experts", default=256),
    "top_k": count("num_experts_per_tok", default=8),
    "shared_ffn": fixed(0),
    "first_dense": fixed(0),
    "dense_ffn": fixed(0),
}

_STEP = maybe("interleave_moe_layer_step", default=1)


def _between(config: Config) -> int:
    """The width of layers without experts, where there are any."""
    width = count("intermediate_size_mlp", default=16384)(config)
    return width if _STEP(config) > 1 else 0


def _every_step(config: Config) -> None:
    """Experts lie where the step says, and the list that newer files have says nothing else."""
    _, listed = config.get("moe_layers")
    step = _STEP(config) or 1
    layers = count("num_hidden_layers", default=48)(config)
    if isinstance(listed, list) and listed and listed != list(range(step - 1, layers, step)):
        what = f"moe_layers is {shown(listed)}, not every {step}th of {layers} layers"
        raise config.bad("moe_layers", what, fix=f"interleave_moe_layer_step alone; {TORCH}")


_LLAMA4: Fields = {
    **_heads(8, 128, layers=48, hidden=5120, heads=40, ffn=8192, vocab=202048),
    "theta": number("rope_theta", default=5e5),
    "window": maybe("attention_chunk_size", default=8192),
    "global_every": every_nth("no_rope_layers", 4, _unturned, "no_rope_layer_interval"),
    "head_norm": flag("use_qk_norm", default=True),
    "experts": count("num_local_experts", "num_experts", default=16),
    "top_k": count("num_experts_per_tok", default=1),
    "shared_ffn": count("intermediate_size", default=8192),
    "every": count("interleave_moe_layer_step", default=1),
    "dense_ffn": _between,
}

_SILU = {"hidden_act": (("silu", "swish"), "the gate is counted as SiLU")}
_BIAS = {"attention_bias": ((False,), "the bias of attention's output layer is left out")}
_SECOND_TOKEN = {
    "num_nextn_predict_layers": ((0,), "the extra layer that predicts a second token is left out"),
    "num_mtp_layers": ((0,), "the extra layer that predicts a second token is left out"),
    "num_mtp_modules": ((0,), "the extra layers that predict more tokens are left out"),
}
_ONE_GROUP = {"n_group": (1,), "topk_group": (1,)}
_CHUNKS = "chunks of places are counted as windows"

_KINDS = {
    "gemma2": HfModelType(Gemma, _GEMMA2, positions(8192), only=_ONE_WAY, noted=_GELU, said=_SAID),
    "gemma3_text": HfModelType(Gemma, _GEMMA3, positions(131072), only=_ONE_WAY, noted=_GELU, said=_SAID),
    "olmo2": HfModelType(Olmo2, _OLMO2, positions(2048), noted={**_SILU, **_BIAS}),
    "gpt_oss": HfModelType(
        GptOss, _GPT_OSS, positions(131072), noted=_SILU,
        said=("layer_types", "swiglu_limit", "swiglu_alpha", "initial_context_length"),
    ),
    "glm4_moe": HfModelType(
        Glm, _GLM, positions(131072), only=_ONE_GROUP, noted={**_SILU, **_SECOND_TOKEN}, said=("intermediate_size",)
    ),
    "minimax_m2": HfModelType(
        Glm, _MINIMAX_M2, positions(196608), only={"scoring_func": ("sigmoid",)}, noted={**_SILU, **_SECOND_TOKEN},
        said=("use_routing_bias", "use_mtp", "mtp_transformer_layers", "qk_norm_type", "attn_type_list",
              "shared_intermediate_size", "partial_rotary_factor", "mtp_num_layers", "router_jitter_noise"),
    ),
    "llama4_text": HfModelType(
        Llama4, _LLAMA4, positions(131072), noted={**_SILU, **_BIAS}, checks=(_every_step,), remarks=(_CHUNKS,),
        said=("attn_temperature_tuning", "floor_scale", "attn_scale", "layer_types", "for_llm_compressor",
              "router_jitter_noise", "intermediate_size_mlp"),
    ),
    "kimi_k2": LLAMA_KINDS["deepseek_v3"],
}  # fmt: skip
KINDS = {name: kind._replace(heads=(*CAUSAL, "ForConditionalGeneration")) for name, kind in _KINDS.items()}

LANGUAGE = {"gemma3": "gemma3_text", "llama4": "llama4_text"}
"""Types of models that see, and that of the language model inside, whose configuration is `text_config`."""
