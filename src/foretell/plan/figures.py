"""Figures in TOML files: a value with its unit, and the source it comes from, beside each other.

    [sources]
    reducer = "PyTorch 2.13, torch/csrc/distributed/c10d/reducer.hpp"

    [gradients]
    bucket = { value = "25 MiB", source = "reducer" }

What a figure may be is said once, by the type of the field that it fills: its unit, its range, its words.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec

from foretell.errors import BadInput, near

UNITS: Final[Mapping[str, Mapping[str, Fraction]]] = {
    "time": {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6)},
    "memory": {"B": Fraction(1)}
    | {f"{letter}B": Fraction(1000**power) for power, letter in enumerate("KMG", 1)}
    | {f"{letter}iB": Fraction(1024**power) for power, letter in enumerate("KMG", 1)},
    "per parameter": {"B/parameter": Fraction(1)},
    "per gradient": {"B/gradient": Fraction(1)},
    "per logit": {"B/logit": Fraction(1)},
    "per score": {"B/score": Fraction(1)},
}
"""What each kind of figure may be written in, and how much of the SI unit that is."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "time"})]
Bytes: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "memory"})]
PerParameter: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "per parameter"})]
PerGradient: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "per gradient"})]
PerLogit: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "per logit"})]
PerScore: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "per score"})]
Ratio: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Figure:
    """A value as it is written, its source in full, and the file that says so."""

    value: Any
    source: str
    where: str


_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?)\s*([A-Za-z/]+)")


def load_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain tables."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise BadInput(f"cannot read {path.name}: {problem.strerror}", where=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadInput(
            f"not a TOML file: {problem}", where=str(path), fix="see docs/trainers.md for the form"
        ) from None


def known(kind: str, key: str, keys: list[str], where: str) -> None:
    """Nothing if the key is one of these, else the error with the near ones."""
    if key not in keys:
        close = near(key, keys) or keys
        raise BadInput(f"no {kind} is called {key!r}", where=where, fix=", ".join(close))


def figures(tables: Mapping[str, Any], shape: type[msgspec.Struct], where: str) -> dict[str, Figure]:
    """The figures that a file gives, by dotted key, checked against the fields of `shape`.

    `tables` has the `sources`; each must be used, and each figure must name one.
    """
    sources = _sources(tables, where)
    found = {key: _figure(value, sources, f"{where}, {key}") for key, value in _entries(tables, shape, "", where)}
    used = {figure.source for figure in found.values()}
    for name, source in sources.items():
        if source not in used:
            raise BadInput(f"no figure names the source {name!r}", where=f"{where}, sources", fix="leave it out")
    return found


def _sources(tables: Mapping[str, Any], where: str) -> dict[str, str]:
    sources = tables.get("sources", {})
    if not isinstance(sources, dict):
        raise BadInput("sources is not a table", where=where, fix='[sources] paper = "Authors year, title"')
    for name, source in cast("dict[str, Any]", sources).items():
        if not isinstance(source, str) or not source.strip():
            raise BadInput(f"the source {name!r} says nothing", where=f"{where}, sources", fix="a text in quotes")
    return cast("dict[str, str]", sources)


def _entries(
    tables: Mapping[str, Any], shape: type[msgspec.Struct], above: str, where: str
) -> Iterator[tuple[str, Any]]:
    """The entries of a table and of the tables in it, by dotted key; the fields say which is which."""
    types = figure_types(shape)
    for name, value in tables.items():
        if not above and name == "sources":
            continue
        key = f"{above}{name}"
        known("section or figure" if not above else "figure", name, list(types), f"{where}, {key}")
        inside = section(types[name])
        if inside is None:
            yield key, value
        elif isinstance(value, dict):
            yield from _entries(cast("dict[str, Any]", value), inside, f"{key}.", where)
        else:
            raise BadInput(f"{name} is not a section", where=f"{where}, {key}", fix=f"[{name}] on a line of its own")


def _figure(entry: Any, sources: Mapping[str, str], where: str) -> Figure:
    fix = '{ value = ..., source = "..." }'
    if not isinstance(entry, dict):
        raise BadInput(f"{entry!r} has no source", where=where, fix=fix)
    entry = cast("dict[str, Any]", entry)
    for key in entry:
        known("part of a figure", key, ["value", "source"], where)
    if "value" not in entry or not isinstance(entry.get("source"), str):
        raise BadInput(f"no {'source' if 'value' in entry else 'value'} is given", where=where, fix=fix)
    known("source", entry["source"], list(sources), where)
    return Figure(entry["value"], sources[entry["source"]], where)


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
    """The kind of quantity (a key of UNITS) that a figure is, by its dotted key; empty for what has no unit."""
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
    unit = _kind(kind)
    value = _quantity(figure, UNITS[unit]) if unit else figure.value
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


def _quantity(figure: Figure, units: Mapping[str, Fraction]) -> float:
    """A number with one of these units, in the SI unit; exact where a float can be."""
    match = _QUANTITY.fullmatch(figure.value.strip()) if isinstance(figure.value, str) else None
    fix = ", ".join(f'"3.1 {unit}"' for unit in units)
    if match is None:
        raise BadInput(f"{figure.value!r} is not a number with a unit", where=figure.where, fix=fix)
    if match[2] not in units:
        raise BadInput(f"{figure.value!r} is in {match[2]!r}, not in {' or '.join(units)}", where=figure.where, fix=fix)
    return float(Fraction(match[1]) * units[match[2]])
