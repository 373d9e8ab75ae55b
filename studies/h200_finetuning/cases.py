"""The fine-tuning steps that are measured: models by their published configurations, and how they train."""

from __future__ import annotations

import hashlib
import random
from typing import Any

SEED = 28
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
DENSE = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
Case = dict[str, Any]

LLAMA3 = {"type": "llama", "vocab_size": 128256, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072}
LLAMA3 |= {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
MODELS: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": LLAMA3 | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True},
    "llama-3.2-3b": LLAMA3 | {
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True},
    "llama-3.1-8b": LLAMA3 | {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False},
    "mistral-7b": {
        "type": "mistral", "vocab_size": 32768, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "sliding_window": None, "tie_word_embeddings": False, "max_position_embeddings": 32768},
    "qwen2.5-7b": {
        "type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False,
        "max_position_embeddings": 131072},
    "qwen2.5-14b": {
        "type": "qwen2", "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 13824,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "max_position_embeddings": 131072},
    "qwen3-4b": {
        "type": "qwen3", "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728,
        "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "tie_word_embeddings": True, "max_position_embeddings": 40960},
    "gemma-2-2b": {
        "type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "sliding_window": 4096, "max_position_embeddings": 8192, "tie_word_embeddings": True},
    "olmoe-1b-7b": {
        "type": "olmoe", "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64,
        "num_experts_per_tok": 8, "tie_word_embeddings": False, "max_position_embeddings": 4096},
    "gpt-oss-20b": {
        "type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "tie_word_embeddings": False},
    "bert-base": {"type": "bert"},
    "bert-large": {
        "type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096},
    "vit-base": {"type": "vit"},
    "vit-large": {
        "type": "vit", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096},
}  # fmt: skip

PLAIN: Case = {
    "method": "full", "weights": "bf16", "autocast": False, "checkpointing": False, "attention": "sdpa",
    "mask": "none", "rank": 0, "targets": "", "adapter": "", "base": "bf16", "optimizer": "adamw_fused",
}  # fmt: skip


def full(model: str, batch: int, length: int, **other: Any) -> Case:
    return {"model": model, "batch": batch, "length": length, **PLAIN, **other}


def lora(model: str, batch: int, length: int, rank: int, targets: str, adapter: str, **other: Any) -> Case:
    """Adapters by PEFT; `adapter` is the type that they are kept in."""
    told = {"method": "lora", "rank": rank, "targets": targets, "adapter": adapter}
    return {**full(model, batch, length), **told, **other}


def nf4(model: str, batch: int, length: int, rank: int, **other: Any) -> Case:
    """All dense layers but the head in four bits, adapters beside all of them."""
    return lora(model, batch, length, rank, "all", "fp32", **{"method": "qlora", "base": "nf4, own kernel", **other})


AUTOCAST = {"weights": "fp32", "autocast": True}
PREPARED = {"autocast": True, "weights": "fp32 but for the packed"}
"""What PEFT's `prepare_model_for_kbit_training` leaves: all that is not packed in fp32, under autocast."""
KEPT = {"checkpointing": True}

EVERY: list[Case] = [
    full("llama-3.2-1b", 8, 1024),
    full("llama-3.2-1b", 1, 8192),
    full("llama-3.2-1b", 8, 1024, **KEPT),
    full("llama-3.2-1b", 8, 1024, **AUTOCAST),
    full("llama-3.2-1b", 4, 2048, **AUTOCAST, **KEPT),
    full("llama-3.2-1b", 8, 1024, attention="eager"),
    full("llama-3.2-1b", 8, 1024, mask="ones"),
    full("llama-3.2-1b", 8, 1024, mask="padded"),
    full("llama-3.2-1b", 1, 8192, mask="packed"),
    full("llama-3.2-1b", 8, 1024, optimizer="adamw_foreach"),
    lora("llama-3.2-1b", 8, 1024, 16, "all", "fp32"),
    lora("llama-3.2-1b", 8, 1024, 16, "all", "bf16"),
    lora("llama-3.2-1b", 8, 1024, 16, "attention", "fp32"),
    lora("llama-3.2-1b", 1, 8192, 64, "all", "fp32", **KEPT),
    lora("llama-3.2-1b", 4, 2048, 8, "attention", "bf16"),
    lora("llama-3.2-1b", 8, 1024, 16, "all", "fp32", autocast=True),
    lora("llama-3.2-1b", 8, 1024, 16, "all", "fp32", attention="eager"),
    nf4("llama-3.2-1b", 8, 1024, 16, **PREPARED),
    nf4("llama-3.2-1b", 8, 1024, 16),
    full("llama-3.2-3b", 4, 1024),
    full("llama-3.2-3b", 8, 1024, **KEPT),
    full("llama-3.2-3b", 4, 1024, **AUTOCAST, **KEPT),
    lora("llama-3.2-3b", 8, 1024, 16, "all", "fp32"),
    lora("llama-3.2-3b", 1, 8192, 32, "all", "bf16", **KEPT),
    nf4("llama-3.2-3b", 8, 1024, 16, **KEPT),
    full("llama-3.1-8b", 4, 1024),
    full("llama-3.1-8b", 1, 8192, **KEPT),
    lora("llama-3.1-8b", 4, 1024, 16, "all", "fp32"),
    lora("llama-3.1-8b", 8, 1024, 16, "all", "bf16", **KEPT),
    lora("llama-3.1-8b", 1, 8192, 64, "attention", "fp32", **KEPT),
    lora("llama-3.1-8b", 4, 1024, 16, "all", "fp32", attention="eager"),
    nf4("llama-3.1-8b", 4, 1024, 16, **KEPT),
    nf4("llama-3.1-8b", 8, 1024, 64, **PREPARED, **KEPT),
    nf4("llama-3.1-8b", 2, 1024, 16),
    lora("qwen2.5-7b", 4, 1024, 16, "all", "fp32"),
    full("qwen2.5-7b", 4, 1024, **KEPT),
    lora("qwen2.5-7b", 8, 1024, 8, "attention", "bf16", **KEPT),
    lora("qwen2.5-14b", 4, 1024, 16, "all", "bf16", **KEPT),
    nf4("qwen2.5-14b", 4, 1024, 32, **KEPT),
    full("qwen3-4b", 4, 1024),
    lora("qwen3-4b", 8, 1024, 32, "all", "fp32", **KEPT),
    full("qwen3-4b", 1, 8192, **KEPT),
    full("gemma-2-2b", 4, 1024, attention="eager"),
    lora("gemma-2-2b", 4, 1024, 16, "all", "fp32"),
    full("gemma-2-2b", 8, 1024, **KEPT),
    lora("mistral-7b", 8, 1024, 16, "all", "fp32", **KEPT),
    full("mistral-7b", 4, 1024),
    lora("mistral-7b", 1, 8192, 64, "all", "bf16", **KEPT),
    full("olmoe-1b-7b", 4, 1024),
    lora("olmoe-1b-7b", 8, 1024, 16, "attention", "fp32"),
    lora("gpt-oss-20b", 2, 1024, 16, "attention", "fp32", attention="eager"),
    full("bert-base", 32, 512, **AUTOCAST),
    full("bert-large", 16, 512),
    full("vit-base", 128, 197, **AUTOCAST),
    full("vit-large", 64, 197, **AUTOCAST, **KEPT),
]


def identity(case: Case) -> str:
    said = ((key if value is True else f"{value}") for key, value in case.items() if value not in ("", False, 0))
    return " ".join(said)


def set_aside(case: Case) -> bool:
    return hashlib.sha256(f"{SEED} {identity(case)}".encode()).digest()[0] % 2 == 1


def drawn() -> list[Case]:
    """In an order drawn by seed, so that stopping early leaves a fair sample."""
    every = list(EVERY)
    random.Random(SEED).shuffle(every)
    return every
