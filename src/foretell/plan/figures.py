"""Figures of a TOML file that fill a struct: its fields say once which there are, their units, ranges and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, cast

import msgspec

from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.hardware.table import Figure, Table

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "time"})]
Bytes: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "memory"})]
PerParameter: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "size per parameter"})]
PerGradient: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "size per gradient"})]
PerLogit: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "size per logit"})]
PerScore: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "size per score"})]
Ratio: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Divisor: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Sharpness: TypeAlias = Annotated[float, msgspec.Meta(ge=1)]  # inf too
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
SomeShare: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

Shares: TypeAlias = tuple[tuple[str, Share], ...]
Ratios: TypeAlias = tuple[tuple[str, Ratio], ...]
"""Tables by a word, such as an architecture; the entry `any` is for the words that it does not have."""


def look_up(table: Shares | Ratios, *words: str) -> float:
    """The entry of a table for the first of some words that it has."""
    entries = dict(table)
    return next((entries[word] for word in words if word in entries), entries["any"])


Depths: TypeAlias = tuple[tuple[str, Ratio], ...]
"""Tables by pipeline ranks; an entry holds from its number up to the next one."""


def look_up_depth(table: Depths, ranks: int) -> float:
    """The entry of a table for a number of pipeline ranks."""
    return [value for depth, value in table if int(depth) <= ranks][-1]


def figures(table: Table, shape: type[msgspec.Struct], *others: str) -> dict[str, Figure]:
    """The figures that a table gives, by dotted key; `others` are keys that are none of the shape's."""
    types = figure_types(shape)
    table.only(*types, *others)
    found: dict[str, Figure] = {}
    for name in table:
        inside = section(types.get(name))
        if inside is not None:
            found |= figures(table.table(name, 'name = { value = ..., source = "..." }'), inside)
        elif name not in others:
            found[table.full(name)] = table.entry(name)
    return found


def figure_types(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a struct that a file fills, with their types; the others have defaults."""
    required = msgspec.NODEFAULT
    return {f.name: f.type for f in msgspec.structs.fields(shape) if f.default is required}


def section(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of a section, or nothing for a figure."""
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def keys(shape: type[msgspec.Struct], above: str = "") -> list[str]:
    """The dotted keys of all figures of a struct, in its order."""
    found: list[str] = []
    for name, kind in figure_types(shape).items():
        inside = section(kind)
        found += [f"{above}{name}"] if inside is None else keys(inside, f"{above}{name}.")
    return found


def kind_of(shape: type[msgspec.Struct], key: str) -> str:
    """The kind of quantity that a figure is, by its dotted key; empty for what has no unit."""
    name, _, rest = key.partition(".")
    kind = figure_types(shape)[name]
    inside = section(kind)
    return _kind(kind) if inside is None else kind_of(inside, rest)


def fill(shape: type[msgspec.Struct], given: Mapping[str, Figure], where: str, **others: Any) -> Any:
    """The struct whose figures these are; `others` are fields that no figure fills."""
    missing = [key for key in keys(shape) if key not in given]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise BadInput(
            f"{missing[0]} is missing{more}", where=where, fix='based_on = "pytorch" carries over what is not given'
        )
    return _fill(shape, given, "", others)


def _fill(shape: type[msgspec.Struct], given: Mapping[str, Figure], above: str, others: dict[str, Any]) -> Any:
    values = dict(others)
    for name, kind in figure_types(shape).items():
        inside = section(kind)
        if inside is not None:
            values[name] = _fill(inside, given, f"{above}{name}.", {})
        else:
            values[name] = _value(given[f"{above}{name}"], kind)
    return shape(**values)


def _value(figure: Figure, kind: Any) -> Any:
    unit, value = _kind(kind), figure.value
    if unit:
        value = quantity.parse(value if isinstance(value, str) else repr(value), unit, figure.where, zero=True)
    value = tuple(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise BadInput(f"{figure.value!r} cannot be used: {problem}", where=figure.where) from None


def _kind(kind: Any) -> str:
    for note in getattr(kind, "__metadata__", ()):
        if isinstance(note, msgspec.Meta) and note.extra:
            return cast("dict[str, str]", note.extra)["unit"]
    return ""
