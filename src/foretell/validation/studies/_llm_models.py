"""Which model of the zoo a published run of a language model trained."""

from __future__ import annotations

import re
from typing import Final

from foretell.model import zoo
from foretell.plan.trainer import Trainer
from foretell.validation.study import Line, Unmapped, spec, stated, whole, whole_or

MEGATRON_DROPOUT: Final = 0.1
"""Megatron-LM, megatron/arguments.py: hidden and attention dropout unless told otherwise."""


LLAMAS: Final = re.compile(r"llama|qwen|mistral|vicuna|yi-|phi-3")


def model_of(line: Line, runs: Trainer) -> tuple[str, tuple[str, ...]]:
    """The model that a line trained, in the zoo's words, and what is not as it was."""
    if "parallel attention" in line.get("comment", "") or "parallel block" in line.get("comment", ""):
        raise Unmapped("attention beside the feed-forward is not in the zoo")
    name = line.get("model", "").lower()
    if not line.get("layers") and zoo.named(line.get("model", "")):
        text = zoo.canonical(line["model"])
        return f"{text}{',' if ':' in text else ':'}seq={whole(line, 'seq_len')}", ()
    family = _family(line, name)
    if family == "moe":
        return _experts(line)
    if family == "bert":
        return _bert(line), ()
    if family not in ("gpt", "llama"):
        raise Unmapped(f"model family {family} is not known")
    gated = line.get("gated_mlp", "") or ("1" if family == "llama" else "0")
    heads, said = _heads(line, gated)
    return (_llama if gated == "1" else _gpt)(line, runs, heads), said


def _family(line: Line, name: str) -> str:
    """As stated, else by name."""
    if line.get("family") or not line.get("layers"):
        return stated(line, "family")
    if whole_or(line, "n_experts", 0):
        return "moe"
    return "bert" if "bert" in name else "llama" if LLAMAS.search(name) else "gpt"


def _heads(line: Line, gated: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """Key heads and the width of the feed-forward: as stated, else the family's usual ones."""
    keys, width, said = whole_or(line, "kv_heads", 0), whole_or(line, "ffn_hidden", 0), list[str]()
    if not keys:
        keys = whole(line, "heads")
        said.append("kv_heads: as many as heads")
    if not width:
        said.append(f"ffn_hidden: {'8/3' if gated == '1' else '4'} of hidden")
        width = None if gated == "1" else 4 * whole(line, "hidden")
    return {"kv_heads": keys, "ffn": width}, tuple(said)


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


def _llama(line: Line, runs: Trainer, heads: dict[str, object]) -> str:
    name = line["model"].lower()
    qwen = re.match(r"qwen(2\.5|2|3)", name)
    extra: dict[str, object] = {"qk_norm": True, "head_dim": 128} if qwen and qwen[1] == "3" else {}
    if qwen and qwen[1] != "3":
        extra = {"qkv_bias": True}
    return spec("llama", **_shape(line), **heads, tied=_tied(line), attention=_kernel(line, runs), **extra)


def _gpt(line: Line, runs: Trainer, heads: dict[str, object]) -> str:
    name = line["model"].lower()
    base = "gpt"
    extra: dict[str, object] = {}
    if "nemotron" in name:
        base = "nemotron4-15b"
    elif "bloom" in name or "ALiBi" in line.get("comment", ""):
        base = "bloom-176b"
    elif line.get("source") == "llm-foundry":
        extra = {"bias": False}
    elif _kernel(line, runs) == "math":
        extra = {"dropout": MEGATRON_DROPOUT}
    kernel = None if base == "bloom-176b" else _kernel(line, runs)
    return spec(base, **_shape(line), **heads, tied=_tied(line), attention=kernel, **extra)


def _bert(line: Line) -> str:
    """Pretraining: 20 masked places of 128, 80 of 512, as Devlin et al. 2019 and NVIDIA's scripts have them."""
    masked = {128: 20, 512: 80}.get(whole(line, "seq_len"))
    if masked is None:
        raise Unmapped("masked places a sequence are not known for this length")
    shape = {**_shape(line), "ffn": whole(line, "ffn_hidden")}
    return spec("bert-large-pretraining", **shape, predictions=masked, dropout=0.1, attention="math")


GPT_OSS: Final = "model: all layers attend to all positions (every second one looks 128 back), experts without biases"


LLAMA_4: Final = "model: positions turn in all layers (in every fourth of Llama 4 they do not)"


def _experts(line: Line) -> tuple[str, tuple[str, ...]]:
    name = line["model"].lower()
    routed: dict[str, object] = {"experts": whole(line, "n_experts"), "top_k": whole(line, "top_k")}
    if re.search(r"deepseek-?v[23]|kimi", name):
        return _latent(line, name, routed), ()
    if re.search(r"hybrid\b|mamba", line.get("comment", "").lower()):
        raise Unmapped(f"model {line['model']} is not in the zoo")
    heads = {"kv_heads": whole(line, "kv_heads"), "ffn": whole(line, "ffn_hidden")}
    shape = {**_shape(line), **heads, "tied": _tied(line), **routed}
    if "gpt-oss" in name:
        return spec("mixture", **shape, head_dim=64, qkv_bias=True), (GPT_OSS,)
    if re.search(r"llama-?4", name) and "every second layer" in line.get("comment", ""):
        dense = {"normalized": False, "shared_ffn": heads["ffn"], "every": 2, "dense_ffn": 2 * heads["ffn"]}
        return spec("mixture", **shape, head_dim=128, **dense), (LLAMA_4,)
    known = re.search(r"qwen3|mixtral|grok", name)
    said = () if known else (f"model: {line['model']} is on Llama's frame, with experts in every layer",)
    return spec("qwen3-30b-a3b" if "qwen3" in name else "mixture", **shape), said


def _latent(line: Line, name: str, routed: dict[str, object]) -> str:
    """DeepSeek, and Kimi-K2 on its frame: one dense layer, experts that are not grouped."""
    width = whole(line, "ffn_hidden")
    if "kimi" in name:
        single = {"first_dense": 1, "groups": 1, "top_groups": 1, "group_best": 1, "routing_scale": 2.827}
        return spec("deepseek-v3", **_shape(line), expert_ffn=width, **routed, **single)
    dense = re.search(r"(?:first )?\b(\d{1,9}) dense layer|first (\d{1,9}) layers dense", line.get("comment", ""))
    first = int(dense[1] or dense[2]) if dense else None
    base = "deepseek-v3" if "v3" in name else "deepseek-v2"
    return spec(base, **_shape(line), expert_ffn=width, **routed, first_dense=first)
