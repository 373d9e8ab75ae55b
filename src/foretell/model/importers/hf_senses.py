"""Whisper, CLIP and LLaVA: models that hear and see, whose files have a configuration for each of their parts.

A part's fields are read under its name: `vision_config.hidden_size`. Defaults are those of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.model.importers.hf_fields import (
    Config,
    Fields,
    HfModelType,
    activation,
    count,
    fixed,
    flag,
    layers,
    maybe,
    number,
    shown,
)
from foretell.model.zoo.clip import Clip
from foretell.model.zoo.llava import Llava
from foretell.model.zoo.whisper import Whisper

NESTED = ("clip", "llava")
"""Types whose files have parts."""

_PARTS = ("text_config", "vision_config")

_EYE = "vision_config"
_TEXT = "text_config"


def flattened(said: Mapping[str, Any]) -> dict[str, Any]:
    """A file with the fields of its parts beside its own, each under its part's name."""
    found = {key: value for key, value in said.items() if key not in _PARTS}
    for part in _PARTS:
        inner = said.get(part)
        if isinstance(inner, dict):
            found.update({f"{part}.{key}": value for key, value in inner.items()})  # pyright: ignore[reportUnknownVariableType]
    return found


_WHISPER: Fields = {
    "layers": layers("encoder_layers", default=4),
    "decoder_layers": layers("decoder_layers", default=4),
    "hidden": count("d_model", default=384),
    "heads": count("encoder_attention_heads", default=6),
    "ffn": count("encoder_ffn_dim", default=1536),
    "activation": activation("activation_function", default="gelu"),
    "vocab": count("vocab_size", default=51865),
    "mels": count("num_mel_bins", default=80),
    "frames": lambda config: 2 * count("max_source_positions", default=1500)(config),
    "positions": count("max_target_positions", default=448),
}


def _alike(config: Config) -> None:
    """Encoder and decoder have as many heads and features."""
    for key, other in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        one, two = config.get(key)[1], config.get(other)[1]
        if one is not None and two is not None and one != two:
            raise config.bad(other, f"{other} is {shown(two)}, and {key} {shown(one)}", fix=shown(one))


def _eye(**default: int) -> Fields:
    """The tower for images."""
    keys = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    keys |= {"ffn": "intermediate_size", "patch": "patch_size", "image": "image_size"}
    return {name: count(f"{_EYE}.{keys[name]}", default=size) for name, size in default.items()}


_CLIP: Fields = {
    **_eye(layers=12, hidden=768, heads=12, ffn=3072, patch=32, image=224),
    "text_layers": layers(f"{_TEXT}.num_hidden_layers", default=12),
    "text_hidden": count(f"{_TEXT}.hidden_size", default=512),
    "text_heads": count(f"{_TEXT}.num_attention_heads", default=8),
    "text_ffn": count(f"{_TEXT}.intermediate_size", default=2048),
    "vocab": count(f"{_TEXT}.vocab_size", default=49408),
    "embedding": count("projection_dim", default=512),
    "activation": activation(f"{_EYE}.hidden_act", default="quick_gelu"),
}

_LLAVA: Fields = {
    "layers": layers(f"{_TEXT}.num_hidden_layers", default=32),
    "hidden": count(f"{_TEXT}.hidden_size", default=4096),
    "heads": count(f"{_TEXT}.num_attention_heads", default=32),
    "kv_heads": maybe(f"{_TEXT}.num_key_value_heads"),
    "head_dim": maybe(f"{_TEXT}.head_dim"),
    "ffn": count(f"{_TEXT}.intermediate_size", default=11008),
    "vocab": count(f"{_TEXT}.vocab_size", default=32000),
    "tied": flag(f"{_TEXT}.tie_word_embeddings", default=False),
    "theta": number(f"{_TEXT}.rope_theta", default=10000.0),
    **{
        (name if name in ("patch", "image") else f"vision_{name}"): source
        for name, source in _eye(layers=24, hidden=1024, heads=16, ffn=4096, patch=14, image=336).items()
    },
    "qkv_bias": fixed(False),
}

_REST = ("dropout", "logit_scale_init_value", "vision_config_dict", "text_config_dict", "attention_dropout")
_SIZES = tuple(f"{part}.{key}" for part in _PARTS for key in (
    "model_type", "dtype", "torch_dtype", "projection_dim", "layer_norm_eps", "transformers_version", "num_channels",
    "attention_dropout", "dropout", "initializer_range", "initializer_factor", "hidden_act", "rms_norm_eps",
    "vocab_size", "use_cache", "_name_or_path", "architectures", "attention_bias", "mlp_bias", "pretraining_tp",
    "rope_parameters", "rope_scaling", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
))  # fmt: skip

KINDS = {
    "whisper": HfModelType(
        Whisper, _WHISPER, count("max_target_positions", default=448), learned=True, checks=(_alike,),
        heads=("ForConditionalGeneration",), only={"scale_embedding": (False,)},
        noted=dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), ((0.0, 0), "dropping of layers is left out")),
        said=("num_hidden_layers", "decoder_attention_heads", "decoder_ffn_dim", "median_filter_width",
              "classifier_proj_size", "apply_spec_augment", "use_weighted_layer_sum", "begin_suppress_tokens",
              "suppress_tokens", "forced_decoder_ids", "max_length", "tie_word_embeddings", "mask_time_prob",
              "mask_time_length", "mask_time_min_masks", "mask_feature_prob", "mask_feature_length",
              "mask_feature_min_masks"),
    ),
    "clip": HfModelType(
        Clip, _CLIP, count(f"{_TEXT}.max_position_embeddings", default=77), learned=True, heads=("CLIPModel",),
        said=(*_REST, *_SIZES),
    ),
    "llava": HfModelType(
        Llava, _LLAVA, count(f"{_TEXT}.max_position_embeddings", default=2048), heads=("ForConditionalGeneration",),
        only={"vision_feature_layer": (-2,), "vision_feature_select_strategy": ("default",),
              f"{_TEXT}.model_type": ("llama",), f"{_EYE}.model_type": ("clip_vision_model",)},
        noted={"projector_hidden_act": (("gelu",), "counted as GELU")},
        remarks=("the tower for images is frozen, as in the published training",),
        said=(*_REST, *_SIZES, "image_seq_length", "multimodal_projector_bias", "ignore_index",
              "tie_word_embeddings"),
    ),
}  # fmt: skip
