"""BERT, T5 and their kin on Hugging Face: which family each type is, and where its fields are.

Defaults are those of transformers 5. What a BERT trains follows from the architecture that its file
names: BertModel is the encoder alone, BertForMaskedLM and BertForPreTraining have their heads.
"""

from __future__ import annotations

from foretell.model.importers.hf_fields import (
    ACTIVATIONS,
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
    usual_sizes,
    word,
)
from foretell.model.zoo.bert import Bert
from foretell.model.zoo.t5 import T5

OBJECTIVES = {"ForMaskedLM": "mlm", "LMHeadModel": "mlm", "ForPreTraining": "pretraining", "Model": "features"}
RESERVED = 2
"""Rows of RoBERTa's position table that no token uses."""


def _objective(*known: str) -> Source:
    """What the first architecture of the file trains, if the family has it; the encoder alone if not."""

    def read(config: Config) -> str:
        name = config.architecture()
        found = next((word for ending, word in OBJECTIVES.items() if name.endswith(ending)), "features")
        return found if found in known else "features"

    return read


def _bert(vocab: int, objectives: tuple[str, ...] = ("mlm",), types: int = 2) -> Fields:
    return {
        **usual_sizes(layers=12, hidden=768, heads=12, ffn=3072, vocab=vocab),
        "positions": count("max_position_embeddings", default=512),
        "types": maybe("type_vocab_size", default=types),
        "activation": activation("hidden_act", default="gelu"),
        "objective": _objective(*objectives),
    }


_DISTILBERT: Fields = {
    "layers": layers("n_layers", "num_hidden_layers", default=6),
    "hidden": count("dim", "hidden_size", default=768),
    "heads": count("n_heads", "num_attention_heads", default=12),
    "ffn": count("hidden_dim", default=3072),
    "vocab": count("vocab_size", default=30522),
    "positions": count("max_position_embeddings", default=512),
    "types": fixed(0),
    "pooler": fixed(False),
    "activation": activation("activation", default="gelu"),
    "objective": _objective("mlm"),
}
_ELECTRA: Fields = {
    **_bert(30522, objectives=()),
    "hidden": count("hidden_size", default=256),
    "heads": count("num_attention_heads", default=4),
    "ffn": count("intermediate_size", default=1024),
    "pooler": fixed(False),
}


def _electra_projection(config: Config) -> None:
    width, hidden = count("embedding_size", default=128)(config), count("hidden_size", default=256)(config)
    if width != hidden:
        what = f"embedding_size is {width} beside a hidden_size of {hidden}, and no family of the zoo has that"
        raise config.bad("embedding_size", what, fix=TORCH)


def _unreserved(config: Config) -> int:
    """The longest sequence of a RoBERTa: the rest of its position table."""
    return count("max_position_embeddings", default=512)(config) - RESERVED


def _enough_positions(config: Config) -> None:
    if _unreserved(config) < 1:
        key = "max_position_embeddings"
        raise config.bad(key, f"{key} leaves no place beyond the {RESERVED} that are reserved", fix="514")


def _feed_forward(config: Config, default: str) -> tuple[str, bool]:
    """T5's word for its feed-forward ('gated-gelu') as (activation, gated)."""
    key = "feed_forward_proj"
    text = word(key, default=default)(config)
    gate, _, function = text.rpartition("-")
    if gate not in ("", "gated") or function not in ACTIVATIONS:
        raise config.bad(key, f"no feed-forward is called {text[:60]!r}", fix="relu, gated-gelu, gated-silu")
    if text == "gated-gelu":  # transformers takes the tanh approximation under this name
        return "gelu_tanh", True
    return ACTIVATIONS[function], bool(gate)


def _decoder_layers(config: Config) -> int:
    """As many as the encoder has, unless the file says otherwise."""
    key, value = config.get("num_decoder_layers")
    return 0 if value is None else layers(key)(config)


def _t5(vocab: int, feed_forward: str, tied: bool, layer_count: int, heads: int, ffn: int) -> Fields:
    return {
        "layers": layers("num_layers", "num_hidden_layers", default=layer_count),
        "decoder_layers": _decoder_layers,
        "hidden": count("d_model", "hidden_size", default=512),
        "heads": count("num_heads", "num_attention_heads", default=heads),
        "head_dim": count("d_kv", default=64),
        "ffn": count("d_ff", default=ffn),
        "vocab": count("vocab_size", default=vocab),
        "buckets": count("relative_attention_num_buckets", default=32),
        "distance": count("relative_attention_max_distance", default=128),
        "activation": lambda config: _feed_forward(config, feed_forward)[0],
        "gated": lambda config: _feed_forward(config, feed_forward)[1],
        "tied": flag("tie_word_embeddings", default=tied),
    }


_ENCODES = {"is_decoder": (False,), "add_cross_attention": (False,)}
_ABSOLUTE = {"position_embedding_type": ("absolute",), **_ENCODES}
_PRETRAINED = ("Model", "ForMaskedLM", "LMHeadModel", "ForPreTraining")
_POSITIONS = count("max_position_embeddings", default=512)
_RELATIVE = count("n_positions", default=512)
_CONDITIONAL = ("ForConditionalGeneration", "WithLMHeadModel")


def _roberta(vocab: int) -> HfModelType:
    heads = ("Model", "ForMaskedLM")
    checks = (_enough_positions,)
    return HfModelType(Bert, _bert(vocab), _unreserved, learned=True, heads=heads, only=_ABSOLUTE, checks=checks)


KINDS = {
    "bert": HfModelType(
        Bert, _bert(30522, ("mlm", "pretraining")), _POSITIONS, learned=True, heads=_PRETRAINED, only=_ABSOLUTE
    ),
    "roberta": _roberta(50265),
    "xlm-roberta": _roberta(30522),
    "camembert": _roberta(30522),
    "distilbert": HfModelType(Bert, _DISTILBERT, _POSITIONS, learned=True, heads=("Model", "ForMaskedLM")),
    "electra": HfModelType(
        Bert, _ELECTRA, _POSITIONS, learned=True, heads=("Model",), only=_ABSOLUTE, checks=(_electra_projection,)
    ),
    "t5": HfModelType(T5, _t5(32128, "relu", True, 6, 8, 2048), _RELATIVE, heads=_CONDITIONAL),
    "mt5": HfModelType(T5, _t5(250112, "gated-gelu", True, 8, 6, 1024), _RELATIVE, heads=_CONDITIONAL),
}
