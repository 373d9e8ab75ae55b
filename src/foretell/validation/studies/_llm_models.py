"""Which model of the zoo a published run of a language model trained."""

from __future__ import annotations

import re
from typing import Final

from foretell.plan.trainer import Trainer
from foretell.validation.study import Line, Unmapped, spec, stated, whole

MEGATRON_DROPOUT: Final = 0.1
"""Megatron-LM, megatron/arguments.py: hidden and attention dropout unless told otherwise."""


def model_of(line: Line, runs: Trainer) -> str:
    """The model that a line trained, in the zoo's words."""
    family = stated(line, "family")
    if "parallel attention" in line.get("comment", "") or "parallel block" in line.get("comment", ""):
        raise Unmapped("attention beside the feed-forward is not in the zoo")
    if family == "moe":
        return _experts(line)
    if family == "bert":
        return _bert(line)
    if family not in ("gpt", "llama"):
        raise Unmapped(f"model family {family} is not known")
    return _llama(line, runs) if line["gated_mlp"] == "1" else _gpt(line, runs)


def _shape(line: Line) -> dict[str, object]:
    """What every family has."""
    return {
        "layers": whole(line, "layers"),
        "hidden": whole(line, "hidden"),
        "heads": whole(line, "heads"),
        "vocab": whole(line, "vocab"),
        "seq": whole(line, "seq_len"),
    }


def _kernel(line: Line, runs: Trainer) -> str:
    """The attention kernel as stated, else the trainer's."""
    said = line.get("flash_attention", "")
    unfused = said == "0" or (not said and runs.attention.kernel == "unfused")
    return "math" if unfused else "flash"


def _tied(line: Line) -> bool:
    return stated(line, "tied_embeddings") == "1"


def _llama(line: Line, runs: Trainer) -> str:
    name = line["model"].lower()
    qwen = re.match(r"qwen(2\.5|2|3)", name)
    extra: dict[str, object] = {"qk_norm": True, "head_dim": 128} if qwen and qwen[1] == "3" else {}
    if qwen and qwen[1] != "3":
        extra = {"qkv_bias": True}
    heads = {"kv_heads": whole(line, "kv_heads"), "ffn": whole(line, "ffn_hidden")}
    return spec("llama", **_shape(line), **heads, tied=_tied(line), attention=_kernel(line, runs), **extra)


def _gpt(line: Line, runs: Trainer) -> str:
    name = line["model"].lower()
    base = "gpt"
    extra: dict[str, object] = {}
    if "nemotron" in name:
        base = "nemotron4-15b"
    elif "bloom" in name or "ALiBi" in line.get("comment", ""):
        base = "bloom-176b"
    elif line["source"] == "llm-foundry":
        extra = {"bias": False}
    elif _kernel(line, runs) == "math":
        extra = {"dropout": MEGATRON_DROPOUT}
    heads = {"kv_heads": whole(line, "kv_heads"), "ffn": whole(line, "ffn_hidden")}
    kernel = None if base == "bloom-176b" else _kernel(line, runs)
    return spec(base, **_shape(line), **heads, tied=_tied(line), attention=kernel, **extra)


def _bert(line: Line) -> str:
    """Pretraining: 20 masked places of 128, 80 of 512, as Devlin et al. 2019 and NVIDIA's scripts have them."""
    masked = {128: 20, 512: 80}.get(whole(line, "seq_len"))
    if masked is None:
        raise Unmapped("masked places a sequence are not known for this length")
    shape = {**_shape(line), "ffn": whole(line, "ffn_hidden")}
    return spec("bert-large-pretraining", **shape, predictions=masked, dropout=0.1, attention="math")


def _experts(line: Line) -> str:
    name = line["model"].lower()
    comment = line.get("comment", "")
    routed: dict[str, object] = {"experts": whole(line, "n_experts"), "top_k": whole(line, "top_k")}
    if "deepseek-v3" in name or "deepseek-v2" in name:
        base = "deepseek-v3" if "deepseek-v3" in name else "deepseek-v2"
        dense = re.search(r"(?:first )?\b(\d{1,9}) dense layer|first (\d{1,9}) layers dense", comment)
        first = int(dense[1] or dense[2]) if dense else None
        return spec(base, **_shape(line), expert_ffn=whole(line, "ffn_hidden"), **routed, first_dense=first)
    if not re.search(r"qwen3|mixtral|grok", name):
        raise Unmapped(f"model {line['model']} is not in the zoo")
    base = "qwen3-30b-a3b" if "qwen3" in name else "mixture"
    heads = {"kv_heads": whole(line, "kv_heads"), "ffn": whole(line, "ffn_hidden")}
    return spec(base, **_shape(line), **heads, tied=_tied(line), **routed)
