"""The sizes of a decoder as configurations write them, and the model of the zoo that they are."""

from __future__ import annotations

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
    )


def model_of(shape: Shape) -> str:
    """How a person types the model with these sizes: its name where it has one, else the family with its fields."""
    for name, fields in zoo.names().items():
        if type(fields) is FAMILIES[shape.family] and name not in FAMILIES and shape_of(name) == shape:
            return name
    known = {field.name for field in msgspec.structs.fields(FAMILIES[shape.family])}
    fields = {name: value for name, value in msgspec.structs.asdict(shape).items() if name in known}
    return f"{shape.family}:" + ",".join(f"{name}={_spelled(value)}" for name, value in fields.items())


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
