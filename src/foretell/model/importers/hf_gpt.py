"""GPT-2 and those built like it on Hugging Face: which family each type is, and where its fields are.

Defaults are those of transformers.
"""

from __future__ import annotations

from foretell.model.importers.hf_fields import (
    CAUSAL,
    TORCH,
    Config,
    Fields,
    HfModelType,
    Source,
    activation,
    count,
    fixed,
    flag,
    layers,
    maybe,
    number,
    positions,
    usual_sizes,
)
from foretell.model.zoo.gpt import Gpt

SIDE_BY_SIDE = (
    "attention and feed-forward run side by side in this model; the graph has them one after the other: "
    "the same weights and matrix work, slightly more kept for the backward pass"
)


def _rotary_features(key: str, default: float, heads: int) -> Source:
    """How many features of a head turn with the position, given as a share."""

    def read(config: Config) -> int:
        hidden = count("hidden_size", default=6144)(config)
        each = maybe("head_dim")(config) or hidden // count("num_attention_heads", default=heads)(config)
        share = number(key, default=default)(config)
        features = int(each * share)
        if not 0.0 < share <= 1.0 or features < 2:
            raise config.bad(key, f"{key} is {share}: {features} features of a head turn", fix=f"{default}")
        return features

    return read


def _learned_rows(positions: Source, before: int = 0) -> Source:
    """Rows of the position table beyond those that a sequence uses."""
    return lambda config: positions(config) - config.seq + before


_GPT2_POSITIONS = count("n_positions", "max_position_embeddings", default=1024)
_GPT2: Fields = {
    "layers": layers("n_layer", "num_hidden_layers", default=12),
    "hidden": count("n_embd", "hidden_size", default=768),
    "heads": count("n_head", "num_attention_heads", default=12),
    "ffn": maybe("n_inner"),
    "vocab": count("vocab_size", default=50257),
    "position_offset": _learned_rows(_GPT2_POSITIONS),
    "activation": activation("activation_function", default="gelu_new"),
    "tied": flag("tie_word_embeddings", default=True),
}


def _shared_by_all(config: Config) -> int:
    """One key and value head for all queries, or one each (0)."""
    return 1 if flag("multi_query", default=True)(config) else 0


_OPT_POSITIONS = count("max_position_embeddings", default=2048)
_OPT: Fields = {
    **usual_sizes(layers=12, hidden=768, heads=12, vocab=50272),
    "ffn": count("ffn_dim", default=3072),
    "position_offset": _learned_rows(_OPT_POSITIONS, before=2),
    "activation": activation("activation_function", default="relu"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("enable_bias", default=True),
}
_NEO: Fields = {
    "layers": layers("num_layers", "num_hidden_layers", default=24),
    "hidden": count("hidden_size", default=2048),
    "heads": count("num_heads", "num_attention_heads", default=16),
    "ffn": maybe("intermediate_size"),
    "vocab": count("vocab_size", default=50257),
    "position_offset": _learned_rows(_OPT_POSITIONS),
    "activation": activation("activation_function", default="gelu_new"),
    "tied": flag("tie_word_embeddings", default=True),
}
_BLOOM: Fields = {
    "layers": layers("n_layer", "num_hidden_layers", default=2),
    "hidden": count("hidden_size", "n_embed", default=64),
    "heads": count("n_head", "num_attention_heads", default=8),
    "vocab": count("vocab_size", default=250880),
    "positions": fixed("alibi"),
    "attention": fixed("efficient"),
    "embedding_norm": fixed(True),
    "tied": flag("tie_word_embeddings", default=True),
}
_NEOX: Fields = {
    **usual_sizes(layers=44, hidden=6144, heads=64, ffn=24576, vocab=50432),
    "positions": fixed("rotary"),
    "rotary_dim": _rotary_features("rotary_pct", 0.25, heads=64),
    "activation": activation("hidden_act", default="gelu"),
    "tied": flag("tie_word_embeddings", default=False),
}
_NEMOTRON: Fields = {
    **usual_sizes(layers=32, hidden=6144, heads=48, ffn=24576, vocab=256000),
    "kv_heads": maybe("num_key_value_heads"),
    "head_dim": maybe("head_dim"),
    "positions": fixed("rotary"),
    "rotary_dim": _rotary_features("partial_rotary_factor", 0.5, heads=48),
    "activation": activation("hidden_act", default="relu2"),
    "tied": flag("tie_word_embeddings", default=False),
    "bias": flag("attention_bias", default=False),
}
_STARCODER2: Fields = {
    **usual_sizes(layers=30, hidden=3072, heads=24, ffn=12288, vocab=49152),
    "kv_heads": maybe("num_key_value_heads", default=2),
    "positions": fixed("rotary"),
    "activation": activation("hidden_act", default="gelu_pytorch_tanh"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("use_bias", default=True),
}


def _opt_projection(config: Config) -> None:
    """opt-350m alone has an embedding of another width than its layers."""
    width, hidden = maybe("word_embed_proj_dim")(config), count("hidden_size", default=768)(config)
    if width not in (0, hidden):
        what = f"word_embed_proj_dim is {width} beside a hidden_size of {hidden}, and no family of the zoo has that"
        raise config.bad("word_embed_proj_dim", what, fix=TORCH)


def _neo_differences(config: Config) -> None:
    """GPT-Neo's queries, keys and values have no bias, and every second layer looks back over a window only."""
    biases = 3 * _NEO["hidden"](config) * _NEO["layers"](config)
    config.warn(f"queries, keys and values have a bias in the graph: {biases:,} parameters more than the model has")
    window = maybe("window_size", default=256)(config)
    if 0 < window < config.seq:
        config.warn(f"the window of {window} tokens in local layers is counted as full attention")


def _side_by_side(config: Config) -> None:
    if flag("use_parallel_residual", default=True)(config):
        config.warn(SIDE_BY_SIDE)


def _window_left_out(config: Config) -> None:
    window = maybe("sliding_window")(config)
    if 0 < window < config.seq:
        config.warn(f"the window of {window} tokens is counted as full attention")


def _one_bias(config: Config) -> None:
    of_attention, of_ffn = (flag(key, default=False)(config) for key in ("attention_bias", "mlp_bias"))
    if of_attention != of_ffn:
        config.warn(f"mlp_bias is {of_ffn} and attention_bias {of_attention}: both are taken as {of_attention}")


def _falcon_keys(config: Config) -> int:
    if flag("new_decoder_architecture", default=False)(config):
        return maybe("num_kv_heads", "n_head_kv")(config)
    return _shared_by_all(config)


def _falcon_norms(config: Config) -> None:
    """One norm for attention and feed-forward together (as in falcon-7b) is not in the zoo."""
    new = flag("new_decoder_architecture", default=False)(config)
    norms = maybe("num_ln_in_parallel_attn")(config) or (2 if new else 1)
    if flag("parallel_attn", default=True)(config):
        if norms != 2:
            what = "attention and feed-forward share one norm in this model, and no family of the zoo has that"
            raise config.bad("parallel_attn", what, fix=TORCH)
        config.warn(SIDE_BY_SIDE)


_FALCON: Fields = {
    "layers": layers("num_hidden_layers", "n_layer", default=32),
    "hidden": count("hidden_size", "n_embed", default=4544),
    "heads": count("num_attention_heads", "n_head", default=71),
    "kv_heads": _falcon_keys,
    "ffn": maybe("ffn_hidden_size"),
    "vocab": count("vocab_size", default=65024),
    "positions": lambda config: "alibi" if flag("alibi", default=False)(config) else "rotary",
    "activation": activation("activation", default="gelu"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("bias", default=False),
}

_NO_CROSS = {"add_cross_attention": (False,)}

_KINDS = {
    "gpt2": HfModelType(Gpt, _GPT2, _GPT2_POSITIONS, learned=True, only=_NO_CROSS),
    "gpt_bigcode": HfModelType(
        Gpt,
        {**_GPT2, "kv_heads": _shared_by_all},
        _GPT2_POSITIONS,
        learned=True,
        only=_NO_CROSS,
    ),
    "gpt_neo": HfModelType(
        Gpt,
        _NEO,
        _OPT_POSITIONS,
        learned=True,
        checks=(_neo_differences,),
        said=("attention_layers", "attention_types"),
    ),
    "opt": HfModelType(
        Gpt,
        _OPT,
        _OPT_POSITIONS,
        learned=True,
        only={"do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,)},
        checks=(_opt_projection,),
    ),
    "bloom": HfModelType(Gpt, _BLOOM, positions(2048, "seq_length")),
    "gpt_neox": HfModelType(
        Gpt,
        _NEOX,
        positions(2048),
        only={"attention_bias": (True,)},
        checks=(_side_by_side,),
        said=("rotary_emb_base",),
    ),
    "nemotron": HfModelType(Gpt, _NEMOTRON, positions(4096), checks=(_one_bias,)),
    "starcoder2": HfModelType(
        Gpt,
        _STARCODER2,
        positions(4096),
        checks=(_window_left_out,),
        said=("mlp_type", "norm_type"),
    ),
    "falcon": HfModelType(Gpt, _FALCON, positions(2048), checks=(_falcon_norms,)),
}
KINDS = {name: kind._replace(heads=CAUSAL) for name, kind in _KINDS.items()}
