"""Hugging Face models that the zoo has no word for: small ones, with random weights, for the tracer.

Each is like no family of the zoo in one way or another: attention and feed-forward side by side (GPT-J,
Phi, Falcon, Cohere), norms after them (OLMo 2), both (Gemma 2), a bias on the scores (MPT, DeBERTa), part
of a head turned (StableLM), experts in every layer (OLMoE, Granite MoE), two stacks (BART, Whisper),
or no transformer of that kind at all (SegFormer, PoolFormer, Mamba).
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

LAYERS, HIDDEN, HEADS, SHARED, FFN, VOCAB, TEXT = 4, 64, 8, 4, 128, 256, 32
"""The sizes of all of them; key and value heads are `SHARED` where queries share them."""

SIZES = {
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GATED = {**SIZES, "intermediate_size": FFN, "num_key_value_heads": SHARED}

GPT = {"n_layer": LAYERS, "n_embd": HIDDEN, "n_head": HEADS, "n_positions": 64, "vocab_size": VOCAB}
"""The words of the older ones."""


def _loss(output: Any) -> torch.Tensor:
    return output.loss


def _trained(kind: str, name: str, inputs: dict[str, torch.Tensor], **fields: Any) -> object:
    config = getattr(transformers, f"{name}Config")(**fields)
    return getattr(transformers, f"AutoModelFor{kind}").from_config(config), inputs, _loss


def _text(batch: int, seq: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, VOCAB, (batch, seq))
    return {"input_ids": tokens, "labels": tokens}


def _decoder(name: str, batch: int, seq: int, **fields: Any) -> object:
    return _trained("CausalLM", name, _text(batch, seq), use_cache=False, **fields)


def gptj(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("GPTJ", batch, seq, **GPT, rotary_dim=4)


def codegen(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("CodeGen", batch, seq, **GPT, rotary_dim=4)


def gemma2(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Gemma2", batch, seq, **GATED, head_dim=8, query_pre_attn_scalar=8, sliding_window=16)


def gemma3(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Gemma3Text", batch, seq, **GATED, head_dim=8, query_pre_attn_scalar=8, sliding_window=16)


def phi(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Phi", batch, seq, **GATED)


def falcon(batch: int = 2, seq: int = TEXT) -> object:
    """As the 7B: one key and value head for all, attention and feed-forward side by side."""
    return _decoder("Falcon", batch, seq, **SIZES, multi_query=True, parallel_attn=True, new_decoder_architecture=False)


def stablelm(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("StableLm", batch, seq, **GATED)


def olmo2(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Olmo2", batch, seq, **GATED)


def cohere(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Cohere", batch, seq, **GATED)


def glm4(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Glm4", batch, seq, **GATED, head_dim=8)


def granite(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Granite", batch, seq, **GATED)


def persimmon(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Persimmon", batch, seq, **SIZES, intermediate_size=FFN)


def mpt(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Mpt", batch, seq, n_layers=LAYERS, d_model=HIDDEN, n_heads=HEADS, max_seq_len=64, vocab_size=VOCAB)


def xglm(batch: int = 2, seq: int = TEXT) -> object:
    sizes = {"num_layers": LAYERS, "d_model": HIDDEN, "attention_heads": HEADS, "ffn_dim": FFN, "vocab_size": VOCAB}
    return _decoder("XGLM", batch, seq, **sizes, max_position_embeddings=64)


def olmoe(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("Olmoe", batch, seq, **GATED, num_experts=8, num_experts_per_tok=2, dtype="bfloat16")


def granitemoe(batch: int = 2, seq: int = TEXT) -> object:
    return _decoder("GraniteMoe", batch, seq, **GATED, num_local_experts=8, num_experts_per_tok=2, dtype="bfloat16")


def mamba(batch: int = 2, seq: int = 8) -> object:
    sizes = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCAB, "state_size": 8}
    return _decoder("Mamba", batch, seq, **sizes)


def deberta(batch: int = 2, seq: int = TEXT) -> object:
    sizes = {**SIZES, "intermediate_size": FFN}
    return _trained(
        "MaskedLM", "DebertaV2", _text(batch, seq), **sizes, relative_attention=True, pos_att_type=["c2p", "p2c"]
    )


def modernbert(batch: int = 2, seq: int = TEXT) -> object:
    return _trained("MaskedLM", "ModernBert", _text(batch, seq), **SIZES, intermediate_size=FFN, local_attention=16)


def bart(batch: int = 2, seq: int = TEXT) -> object:
    ends = {"encoder": LAYERS, "decoder": LAYERS}
    sizes = {f"{end}_layers": layers for end, layers in ends.items()}
    sizes |= {f"{end}_attention_heads": HEADS for end in ends} | {f"{end}_ffn_dim": FFN for end in ends}
    fields = {"d_model": HIDDEN, "vocab_size": VOCAB, "max_position_embeddings": 64, "use_cache": False}
    return _trained("Seq2SeqLM", "Bart", _text(batch, seq), **sizes, **fields)


def whisper(batch: int = 2, seq: int = TEXT) -> object:
    """Sound in (64 frames), text out."""
    ends = ("encoder", "decoder")
    sizes: dict[str, int] = {f"{end}_layers": LAYERS for end in ends}
    sizes |= {f"{end}_attention_heads": HEADS for end in ends} | {f"{end}_ffn_dim": FFN for end in ends}
    fields = {"d_model": HIDDEN, "vocab_size": VOCAB, "max_source_positions": 32, "max_target_positions": 64}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    inputs = {"input_features": torch.randn(batch, 80, 64), "labels": torch.randint(3, VOCAB, (batch, seq))}
    return _trained("SpeechSeq2Seq", "Whisper", inputs, **sizes, **fields, **special, use_cache=False)


def _image(batch: int, side: int = 64) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(10, (batch,))}


def segformer(batch: int = 2) -> object:
    return _trained("ImageClassification", "Segformer", _image(batch), num_labels=10)


def poolformer(batch: int = 2) -> object:
    return _trained("ImageClassification", "PoolFormer", _image(batch), num_labels=10)


def dinov2(batch: int = 2) -> object:
    sizes = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS}
    return _trained("ImageClassification", "Dinov2", _image(batch, 56), **sizes, image_size=56, num_labels=10)
