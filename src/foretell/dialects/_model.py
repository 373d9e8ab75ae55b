"""The sizes of a decoder as configurations write them, and the model of the zoo that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from foretell.errors import ForetellError
from foretell.model import zoo
from foretell.model.family import Family
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture

FAMILIES: Final[dict[str, type[Family]]] = {"llama": Llama, "gpt": Gpt, "mixture": Mixture}

RUN: Final = ("seq", "dtype", "attention", "dropout")
"""Fields of a model that belong to a run here."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder's sizes, written out: nothing is left to a rule of the family."""

    family: str = "llama"
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    vocab: int = 0
    tied: bool = False
    theta: float = 10000.0
    experts: int = 0
    top_k: int = 0
    shared_ffn: int = 0  # of an expert for every token
    qk_norm: bool = False
    qkv_bias: bool = False
    positions: str = "learned"  # these three are said of the GPT family alone
    activation: str = "gelu_tanh"
    bias: bool = True


DEEPSEEK: Final = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "vocab_size": "vocab",
    "kv_lora_rank": "kv_rank",
    "qk_head_dim": "head_dim",
    "qk_pos_emb_head_dim": "rotary_dim",
    "v_head_dim": "value_dim",
    "ffn_hidden_size": "ffn",
    "num_experts": "experts",
    "moe_router_topk": "top_k",
    "moe_ffn_hidden_size": "expert_ffn",
    "moe_router_topk_scaling_factor": "routing_scale",
    "moe_router_num_groups": "groups",
    "moe_router_group_topk": "top_groups",
}
"""Megatron-Core's words for multi-latent attention and its experts, and the fields of the zoo's `deepseek`."""


def shape_of(model: str) -> Shape | None:
    """The sizes of a model of the zoo; None where it is none of these families or has what they do not tell."""
    try:
        _, fields = zoo.parse(model)
    except ForetellError:
        return None
    family = next((name for name, kind in FAMILIES.items() if type(fields) is kind), "")
    if not family:
        return None
    shape = _written_out(family, fields)
    told = set(msgspec.structs.asdict(shape)) | set(RUN)
    own = FAMILIES[family]()
    same = all(getattr(fields, one.name) == getattr(own, one.name) for one in msgspec.structs.fields(own)
               if one.name not in told)  # fmt: skip
    return shape if same else None


def _written_out(family: str, fields: Any) -> Shape:
    head_dim = fields.head_dim or fields.hidden // fields.heads
    return Shape(
        family=family,
        layers=fields.layers,
        hidden=fields.hidden,
        heads=fields.heads,
        kv_heads=fields.kv_heads or fields.heads,
        head_dim=head_dim,
        ffn=fields.ffn or (4 * fields.hidden if family == "gpt" else fields.inner),
        vocab=fields.vocab,
        tied=fields.tied,
        theta=getattr(fields, "theta", 10000.0),
        experts=getattr(fields, "experts", 0),
        top_k=getattr(fields, "top_k", 0),
        shared_ffn=getattr(fields, "shared_ffn", 0),
        qk_norm=getattr(fields, "qk_norm", False),
        qkv_bias=getattr(fields, "qkv_bias", False),
        positions=getattr(fields, "positions", "learned"),
        activation=getattr(fields, "activation", "gelu_tanh"),
        bias=getattr(fields, "bias", True),
    )


def model_of(shape: Shape) -> str:
    """How a person types the model with these sizes: its name where it has one, else the family with its fields."""
    for name, fields in zoo.names().items():
        if type(fields) is FAMILIES[shape.family] and name not in FAMILIES and shape_of(name) == shape:
            return name
    known = {field.name for field in msgspec.structs.fields(FAMILIES[shape.family])}
    own = FAMILIES[shape.family]()
    fields = {name: value for name, value in msgspec.structs.asdict(shape).items() if name in known}
    later = ("shared_ffn", "qk_norm", "qkv_bias", "positions", "activation", "bias")  # said where they are not usual
    fields = {name: value for name, value in fields.items() if name not in later or value != getattr(own, name)}
    return f"{shape.family}:" + ",".join(f"{name}={_spelled(value)}" for name, value in fields.items())


def model_with(family: str, fields: Mapping[str, Any]) -> str:
    """How a person types the model of a family with these fields: its name where it has one."""
    own = zoo.names()[family]
    given = {name: type(getattr(own, name))(value) for name, value in fields.items()}
    for name, preset in zoo.names().items():
        if type(preset) is type(own) and name != family and _same(preset, own, given):
            return name
    return f"{family}:" + ",".join(f"{name}={_spelled(value)}" for name, value in given.items())


def named(text: str) -> str:
    """The model of the zoo that a name of elsewhere means (an id of the Hugging Face hub, a path); empty: none."""
    try:
        model = zoo.canonical(text)
        zoo.parse(model)
    except ForetellError:
        return ""
    return model


def layers_of(model: str) -> int:
    """Layers of a model of the zoo; 0 where it has no such figure."""
    try:
        return int(getattr(zoo.parse(model)[1], "layers", 0))
    except ForetellError:
        return 0


def _same(preset: Family, own: Family, given: Mapping[str, Any]) -> bool:
    fields = [one.name for one in msgspec.structs.fields(preset) if one.name not in RUN]
    return all(getattr(preset, name) == given.get(name, getattr(own, name)) for name in fields)


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
