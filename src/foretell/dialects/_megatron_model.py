"""The model that options of Megatron-Core describe: sizes of decoders, and what makes them another kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from foretell.dialects._model import DEEPSEEK, model_with
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import NOTES, Document, Figures, UnknownValue

Place = Callable[[str], str]

SIZES: Final = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn",
    "num_attention_heads": "heads",
    "kv_channels": "head_dim",
    "vocab_size": "vocab",
}

LLAMA: Final = {
    "swiglu": True,
    "normalization": "RMSNorm",
    "disable_bias_linear": True,
    "position_embedding_type": "rope",
}

OTHERS: Final = (
    *("group_query_attention", "num_query_groups", "rotary_base", "num_experts", "moe_router_topk"),
    *("untie_embeddings_and_output_weights", "max_position_embeddings", "padded_vocab_size", "qk_layernorm"),
    *("add_qkv_bias", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_layer_freq", "squared_relu"),
    *("multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
    *("tokenizer_type", "tokenizer_model", "merge_file", "use_rotary_position_embeddings", "rotary_percent"),
    *("moe_router_score_function", "moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor"),
    *("moe_router_enable_expert_bias",),
)

VOCABULARIES: Final = {
    "gpt2bpetokenizer": 50257,
    "llama2tokenizer": 32000,
    "bertwordpiecelowercase": 30522,
    "deepseek-ai/deepseek-v3": 129280,
    "deepseek-ai/deepseek-v2-lite": 102400,
}
"""Entries of a tokenizer, by its type or by the name of its model, where no option says them.

The GPT-2 files; Touvron et al. 2023, section 2.2; bert-large-uncased; config.json of the two DeepSeek models.
"""


def written(recipe: Recipe, at: Place) -> Document:
    """The options that describe a model."""
    shape = recipe.shape
    if shape is None:
        return {}
    keys: Document = {key: getattr(shape, size) for key, size in SIZES.items()}
    keys["max_position_embeddings"] = recipe.sequence
    if shape.family != "gpt":
        keys |= {**LLAMA, "rotary_base": int(shape.theta)}
    elif shape.positions == "rotary":
        keys["position_embedding_type"] = "rope"
    keys |= {key: True for key, given in _switches(shape).items() if given}
    if shape.kv_heads != shape.heads:
        keys["num_query_groups"] = shape.kv_heads
    if shape.experts:
        keys |= {"num_experts": shape.experts, "moe_router_topk": shape.top_k}
    if shape.shared_ffn:
        keys["moe_shared_expert_intermediate_size"] = shape.shared_ffn
    return {at(key): value for key, value in keys.items()}


def _switches(shape: Any) -> dict[str, bool]:
    return {
        "group_query_attention": shape.kv_heads != shape.heads,
        "untie_embeddings_and_output_weights": not shape.tied,
        "qk_layernorm": shape.qk_norm,
        "add_qkv_bias": shape.qkv_bias,
        "squared_relu": shape.activation == "squared_relu",
        "disable_bias_linear": shape.family != "gpt" or not shape.bias,
    }


def described(document: Document, at: Place, program: str = "") -> Figures:
    """What the options say of the model; nothing where some are not known."""
    said: Document = {key: document.get(at(key)) for key in (*SIZES, *LLAMA, *OTHERS)}
    if any(
        isinstance(value, UnknownValue) or str(value).startswith("$") for key, value in said.items() if key in _NEEDED
    ):
        return {}
    said["vocab_size"] = _vocabulary(said)
    if program == "pretrain_bert.py":
        return _bert(said, document.get(at("seq_length")))
    if said["multi_latent_attention"]:
        return _latent(said)
    unlike = _no_mixture(said) if said["num_experts"] else ""
    return {NOTES: (f"{unlike}: no model here is like it, name yours",)} if unlike else _decoder(said)


_NEEDED: Final = tuple(
    key for key in (*SIZES, *LLAMA, *OTHERS) if key not in ("tokenizer_model", "tokenizer_type", "merge_file")
)


def _vocabulary(said: Mapping[str, Any]) -> Any:
    given = said["vocab_size"] or said["padded_vocab_size"]
    if given:
        return given
    for key in ("tokenizer_model", "tokenizer_type"):
        found = VOCABULARIES.get(str(said[key]).lower())
        if found:
            return found
    return VOCABULARIES["gpt2bpetokenizer"] if said["merge_file"] and not said["tokenizer_type"] else None


def _decoder(said: Mapping[str, Any]) -> Figures:
    found: Figures = {f"shape.{size}": said[key] for key, size in SIZES.items()}
    gated = bool(said["swiglu"])
    found["shape.family"] = "llama" if gated else "gpt"
    hidden = said["hidden_size"]
    if isinstance(hidden, int) and not found["shape.ffn"]:
        found["shape.ffn"] = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    if said["group_query_attention"]:
        found["shape.kv_heads"] = said["num_query_groups"] or 1
    found["shape.tied"] = not said["untie_embeddings_and_output_weights"]
    found["shape.theta"] = said["rotary_base"]
    found["shape.qk_norm"] = bool(said["qk_layernorm"])
    found["shape.qkv_bias"] = bool(said["add_qkv_bias"])
    if not gated:
        found |= _gpt(said)
    if said["num_experts"]:
        found |= _experts(said)
    return {name: value for name, value in found.items() if value is not None}


def _gpt(said: Mapping[str, Any]) -> Figures:
    rotary = said["position_embedding_type"] == "rope" or said["use_rotary_position_embeddings"]
    positions = {"learned_absolute": "learned", "none": "none"}.get(str(said["position_embedding_type"]), "learned")
    return {
        "shape.positions": "rotary" if rotary else positions,
        "shape.activation": "squared_relu" if said["squared_relu"] else "gelu_tanh",
        "shape.bias": not said["disable_bias_linear"],
    }


def _no_mixture(said: Mapping[str, Any]) -> str:
    """What keeps experts from being a model of the zoo; empty: nothing."""
    every = said["moe_layer_freq"]
    if every not in (None, 1) and not _all_layers(every):
        return f"moe_layer_freq {every}: dense layers among those with experts"
    return "" if said["swiglu"] else "experts without swiglu"


def _experts(said: Mapping[str, Any]) -> Figures:
    return {
        "shape.experts": said["num_experts"],
        "shape.top_k": said["moe_router_topk"] or 2,
        "shape.ffn": said["moe_ffn_hidden_size"] or said["ffn_hidden_size"],
        "shape.shared_ffn": said["moe_shared_expert_intermediate_size"] or 0,
    }


def _all_layers(every: Any) -> bool:
    return isinstance(every, list) and set(map(str, cast("list[Any]", every))) == {"1"}


def _latent(said: Mapping[str, Any]) -> Figures:
    """Multi-latent attention: DeepSeek's."""
    fields = {ours: said[theirs] for theirs, ours in DEEPSEEK.items() if said.get(theirs) is not None}
    dense = _first_dense(said["moe_layer_freq"])
    shared, width = said["moe_shared_expert_intermediate_size"], said["moe_ffn_hidden_size"]
    if dense is None or not width or not said["vocab_size"]:
        return {}
    fields |= {"first_dense": dense, "shared_experts": (shared or 0) // width}
    fields |= {"corrected": bool(said["moe_router_enable_expert_bias"]), "query_rank": said["q_lora_rank"] or 0}
    fields.setdefault("routing_scale", 1.0)
    fields.setdefault("groups", 1)
    fields.setdefault("top_groups", 1)
    fields["score"] = said["moe_router_score_function"] or "softmax"
    return {"model": model_with("deepseek", fields)}


def _first_dense(every: Any) -> int | None:
    """Dense layers before those with experts: of [0]*3+[1]*58 three."""
    if every in (None, 1):
        return 0
    text = str(every).replace(" ", "").strip("\"'()")
    first, plus, rest = text.partition("+")
    if not plus:
        first, rest = "[0]*0", text
    counts = [part[4:] for part in (first, rest)]
    good = first.startswith("[0]*") and rest.startswith("[1]*") and all(count.isdecimal() for count in counts)
    return int(counts[0]) if good else None


def _bert(said: Mapping[str, Any], sequence: Any) -> Figures:
    hidden = said["hidden_size"]
    fields = {
        "layers": said["num_layers"],
        "hidden": hidden,
        "heads": said["num_attention_heads"],
        "ffn": said["ffn_hidden_size"] or (4 * hidden if isinstance(hidden, int) else None),
        "vocab": said["vocab_size"] or VOCABULARIES["bertwordpiecelowercase"],
        "positions": said["max_position_embeddings"] or sequence,
        "objective": "pretraining",
    }
    if any(value is None for value in fields.values()):
        return {}
    note = "" if said["vocab_size"] else "the vocabulary of bert-large-uncased (30,522) is assumed"
    return {"model": model_with("bert", fields)} | ({NOTES: (note,)} if note else {})
