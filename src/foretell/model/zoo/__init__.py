"""The zoo: models by name. One file a family; a family has named sizes and settable fields.

llama3-8b                          a named size
llama3-8b:layers=16,seq=8192       the same with fields set
llama:hidden=2048,layers=16        the family with its defaults
"""

from __future__ import annotations

import functools
from typing import Any, cast

import msgspec

from foretell.errors import BadInput
from foretell.model import naming
from foretell.model.family import Family
from foretell.model.graph import Graph
from foretell.model.naming import unknown_model
from foretell.registry import OpenSet

FAMILIES = OpenSet(__name__, "model family")


@functools.cache
def names() -> dict[str, Family]:
    """Every name in the zoo with its fields."""
    found: dict[str, Family] = {}
    for family in FAMILIES:
        presets: dict[str, Family] = FAMILIES[family].PRESETS
        for name, fields in presets.items():
            if name in found:
                raise ValueError(f"two families are called {name}")
            found[name] = fields
    return found


def canonical(spec: str) -> str:
    """The text of a model with the zoo's own name, if it is one of its members under another name."""
    return naming.canonical(spec, names())


def parse(spec: str) -> tuple[str, Family]:
    """A name with fields, such as 'llama3-8b:layers=16', as (name, fields)."""
    name, _, rest = canonical(spec).partition(":")
    known = names()
    if name not in known:
        raise unknown_model(name, known)
    fields: dict[str, str] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise BadInput(f"{item!r} is not field=value", where=spec, fix=f"{name}:dtype=bf16")
        if key.strip() in fields:
            raise BadInput(f"field {key.strip()!r} is set twice", where=spec)
        fields[key.strip()] = value.strip()
    return name, known[name].with_fields(fields, where=spec)


def named(spec: str) -> Family | None:
    """The member that a text names, by its own name or another, with its fields; None where it names none."""
    return parse(spec)[1] if canonical(spec).partition(":")[0] in names() else None


def text(fields: Family) -> str:
    """The model with these fields as a text: its family, and what is not as usual."""
    name = next(family for family in FAMILIES if type(FAMILIES[family].PRESETS.get(family)) is type(fields))
    usual = msgspec.structs.asdict(names()[name])
    said = {key: value for key, value in msgspec.structs.asdict(fields).items() if value != usual[key]}
    return f"{name}:{','.join(f'{key}={_written(value)}' for key, value in said.items())}" if said else name


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(map(str, cast("tuple[Any, ...]", value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(spec: str, batch: int = 1) -> Graph:
    """The graph of a model of the zoo."""
    _, fields = parse(spec)
    return fields.graph(spec, batch)
