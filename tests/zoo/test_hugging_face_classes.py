"""Newer models by their configuration and by tracing the class of transformers: the same graph, or why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.model.importers import hf_config
from foretell.model.importers.torch_trace import trace
from foretell.model.totals import Totals, totals

BATCH, PLACES = 2, 32
SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {**SIZES, "head_dim": 16}
KINDS: dict[str, dict[str, Any]] = {
    "gemma2": {**HEADS, "num_hidden_layers": 4, "sliding_window": 8},
    "gemma3_text": {**HEADS, "num_hidden_layers": 6, "sliding_window": 8, "sliding_window_pattern": 3},
    "olmo2": {**SIZES, "num_hidden_layers": 3},
    "gpt_oss": {**HEADS, "num_hidden_layers": 4, "sliding_window": 8, "num_local_experts": 8},
    "glm4_moe": {
        **HEADS,
        "num_hidden_layers": 4,
        "moe_intermediate_size": 40,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "use_qk_norm": True,
        "attention_bias": True,
    },
    "minimax_m2": {**HEADS, "num_hidden_layers": 3, "num_local_experts": 16, "rotary_dim": 8},
    "mixtral": {**SIZES, "num_hidden_layers": 3, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {
        **HEADS,
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "intermediate_size_mlp": 96,
        "interleave_moe_layer_step": 2,
    },
}


SIMPLE = tuple(KINDS)
SCANNED = ("mamba2", "nemotron_h", "jamba", "qwen3_next")
OTHERS = ("deepseek_v3", "deepseek_v32", "whisper", "clip", "llava")
"""All that are compared here, or said why not."""

SCANS = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "vocab_size": 96,
    "num_heads": 8,
    "head_dim": 16,
    "state_size": 8,
    "n_groups": 2,
    "chunk_size": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def both(folder: Path, kind: str, sizes: dict[str, Any], places: int = PLACES) -> tuple[Totals, Totals]:
    """What the zoo's family has by this configuration, and the class of transformers traced, scores written out."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **sizes)
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": kind}))
    ours = totals(hf_config.load(folder, batch=BATCH, seq=places, dtype="bf16"))
    config._attn_implementation = "eager"
    tokens = torch.randint(3, SIZES["vocab_size"], (BATCH, places))

    def build() -> torch.nn.Module:
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)

    given = {"input_ids": tokens, "labels": tokens, "use_cache": False}
    return ours, totals(trace(build, given, lambda y: y.loss, name=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_of_transformers_is_the_same_model(tmp_path: Path, kind: str) -> None:
    """Parameters and products of the forward pass are equal. Backward, fused attention makes its scores again, which
    written out it keeps; and Llama 4's class runs every token through every expert, those not chosen times zero."""
    ours, theirs = both(tmp_path, kind, KINDS[kind])
    layers, idle = KINDS[kind]["num_hidden_layers"], 0
    if kind == "llama4_text":
        idle = 2 * (4 - 1) * BATCH * PLACES * 3 * 2 * 64 * 48  # layers, experts, tokens, products
    local = kind in ("gemma2", "gemma3_text", "gpt_oss")
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix + idle == theirs.forward.matrix
    again = layers * BATCH * 4 * PLACES**2 * 2 * 16
    assert ours.backward.matrix + 2 * idle - again == theirs.backward.matrix
    assert ours.saved_bytes < theirs.saved_bytes or not local


def convolutions(places: int, channels: int) -> int:
    """Multiplications of a short convolution of four places, which torch runs past the end."""
    return BATCH * (places + 3) * channels * 4 * 2


def test_a_hybrid_of_scans_and_attention_is_that_of_transformers(tmp_path: Path) -> None:
    """Nemotron-H: one layer of Mamba-2 (see below), one of attention, two of feed-forward."""
    sizes = {**HEADS, "num_hidden_layers": 4, "hybrid_override_pattern": "M-*-", "mamba_num_heads": 8}
    sizes |= {"mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 16}
    ours, theirs = both(tmp_path, "nemotron_h", sizes)
    heads, groups, chunk, state, feature, chunks = 8, 2, 16, 8, 16, PLACES // 16 + 1
    scores = BATCH * PLACES * (heads - groups) * chunk * state * 2
    states = BATCH * chunks**2 * heads * feature * state * 2
    assert ours.parameters == theirs.parameters
    more = scores + states + convolutions(PLACES, heads * feature + 2 * groups * state)
    assert ours.forward.matrix + more == theirs.forward.matrix


def test_selective_scans_read_states_by_products(tmp_path: Path) -> None:
    """Jamba: seven of eight layers are Mamba. Written out, what a place reads of its state is a product, and the short
    convolution one of torch's; in a scan's kernel both are element by element."""
    sizes = {**SIZES, "num_hidden_layers": 8, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 8}
    ours, theirs = both(tmp_path, "jamba", {**sizes, "mamba_dt_rank": 8})
    inner, state = 2 * 64, 8
    assert ours.parameters == theirs.parameters
    more = BATCH * PLACES * inner * state * 2 + convolutions(PLACES, inner)
    assert ours.forward.matrix + 7 * more == theirs.forward.matrix


def test_the_gated_delta_rule_of_transformers_inverts_row_by_row(tmp_path: Path) -> None:
    """Qwen3-Next: three of four layers. The triangle of a chunk is inverted by products in the kernels, and row by row,
    without any, where it is written out; the convolution as above. Places are those of a chunk: shorter texts are
    filled up to it when written out."""
    sizes = {**HEADS, "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2}
    sizes |= {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "linear_num_value_heads": 4}
    sizes |= {"linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
    chunk = 64
    ours, theirs = both(tmp_path, "qwen3_next", sizes, chunk)
    inverted = BATCH * 4 * chunk**3
    more = convolutions(chunk, 2 * 2 * 16 + 4 * 16)
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix + 3 * (more - inverted) == theirs.forward.matrix


def test_scans_of_transformers_are_written_out(tmp_path: Path) -> None:
    """Their scores are each head's, not each group's; states of chunks meet all states before in a product; and the
    short convolution is one of torch's, whose multiplications count as matrix work and which runs past the end."""
    ours, theirs = both(tmp_path, "mamba2", SCANS)
    heads, groups, chunk, state, feature, chunks = 8, 2, 16, 8, 16, PLACES // 16 + 1
    scores = BATCH * PLACES * (heads - groups) * chunk * state * 2
    states = BATCH * chunks**2 * heads * feature * state * 2
    channels = heads * feature + 2 * groups * state
    convolution = BATCH * (PLACES + 3) * channels * 4 * 2
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix + 3 * (scores + states + convolution) == theirs.forward.matrix
    assert ours.saved_bytes < theirs.saved_bytes


TOWER = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
EYE = {**TOWER, "image_size": 32, "patch_size": 8}


def several(folder: Path, kind: str, name: str, sizes: dict[str, Any], given: dict[str, Any]) -> tuple[Totals, Totals]:
    """The same of a class that reads more than tokens."""
    import transformers

    config = transformers.AutoConfig.for_model(kind, **sizes)
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": kind}))
    ours = totals(hf_config.load(folder, batch=BATCH, seq=PLACES))
    config._attn_implementation = "sdpa"
    theirs = trace(lambda: getattr(transformers, name)(config), given, lambda y: y.loss, name=kind)
    return ours, totals(theirs)


def test_whisper_is_that_of_transformers(tmp_path: Path) -> None:
    sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "vocab_size": 96}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "num_mel_bins": 8}
    sizes |= {"max_source_positions": 24, "max_target_positions": 48, "pad_token_id": 0, "decoder_start_token_id": 1}
    sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    tokens = torch.randint(3, 96, (BATCH, PLACES))
    given = {"input_features": torch.randn(BATCH, 8, 48), "decoder_input_ids": tokens, "labels": tokens}
    ours, theirs = several(tmp_path, "whisper", "WhisperForConditionalGeneration", sizes, {**given, "use_cache": False})
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward.matrix
    assert ours.backward.matrix == theirs.backward.matrix


def test_clip_is_that_of_transformers(tmp_path: Path) -> None:
    text = {**TOWER, "hidden_size": 32, "vocab_size": 96, "max_position_embeddings": PLACES}
    text |= {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    sizes = {"text_config": text, "vision_config": EYE, "projection_dim": 48}
    given = {"input_ids": torch.randint(3, 96, (BATCH, PLACES)), "pixel_values": torch.randn(BATCH, 3, 32, 32)}
    ours, theirs = several(tmp_path, "clip", "CLIPModel", sizes, {**given, "return_loss": True})
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward.matrix
    assert ours.backward.matrix == theirs.backward.matrix


SPARSE = {
    **SIZES,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "index_n_heads": 3,
    "index_head_dim": 16,
    "index_topk": 8,
}


def test_latent_attention_with_experts_is_that_of_transformers(tmp_path: Path) -> None:
    """DeepSeek-V3, R1 and Kimi K2: backward, fused attention makes its scores again."""
    sizes = {key: size for key, size in SPARSE.items() if not key.startswith("index_")}
    ours, theirs = both(tmp_path, "deepseek_v3", sizes)
    again = 3 * BATCH * 4 * PLACES**2 * 2 * 24
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward.matrix
    assert ours.backward.matrix - again == theirs.backward.matrix


def test_llava_has_the_parameters_of_transformers(tmp_path: Path) -> None:
    """Its class counts which tokens are an image's while it runs, which nothing without data can answer: it is built,
    and not traced. That the tower is CLIP's and the rest a Llama's is tested with those."""
    import transformers

    text = {**SIZES, "model_type": "llama", "num_hidden_layers": 3}
    sizes = {"text_config": text, "vision_config": {**EYE, "model_type": "clip_vision_model"}, "image_token_index": 95}
    config = transformers.AutoConfig.for_model("llava", **sizes)
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": "llava"}))
    with torch.device("meta"):
        theirs = transformers.LlavaForConditionalGeneration(config)
    ours = totals(hf_config.load(tmp_path, batch=BATCH, seq=PLACES))
    assert ours.parameters == sum(weight.numel() for weight in theirs.parameters())


def test_sparse_attention_of_transformers_is_a_mask(tmp_path: Path) -> None:
    """Parameters and products of the forward pass are equal, what chooses places included; backward, fused attention
    makes its scores again."""
    ours, theirs = both(tmp_path, "deepseek_v32", SPARSE)
    again = 3 * BATCH * 4 * PLACES**2 * 2 * 24
    assert ours.parameters == theirs.parameters
    assert ours.forward.matrix == theirs.forward.matrix
    assert ours.backward.matrix - again == theirs.backward.matrix
