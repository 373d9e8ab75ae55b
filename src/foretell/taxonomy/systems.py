"""The systems that ship, one TOML file each, checked against the categories."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from foretell.errors import BadInput, unknown

_HERE = Path(__file__).parent
AXES = ("parallelism", "optimization", "scheduling", "exchange", "topology")
"""That every system has a place on."""


class Category(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One axis: its values with what they mean, and the branch of the tree that it hangs on."""

    source: str
    under: str
    values: dict[str, str]


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One system, where it lies, and what is like it here: a plan, an algorithm of `foretell simulate`."""

    title: str
    source: str
    parallelism: tuple[str, ...]
    optimization: str
    scheduling: str
    exchange: tuple[str, ...]
    topology: tuple[str, ...]
    remark: str
    plan: str = ""
    simulate: str = ""

    def on(self, axis: str) -> tuple[str, ...]:
        """Its values on an axis."""
        value: str | tuple[str, ...] = getattr(self, axis)
        return (value,) if isinstance(value, str) else value


@functools.cache
def categories() -> Mapping[str, Category]:
    """The axes of the taxonomy."""
    found = tomllib.loads((_HERE / "categories.toml").read_text())
    return msgspec.convert(found, dict[str, Category])


@functools.cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_HERE / "systems").glob("*.toml")))


@functools.cache
def system(name: str) -> System:
    """A system by its name."""
    if name not in names():
        raise unknown("system", name, names(), listing="foretell systems")
    file = _HERE / "systems" / f"{name}.toml"
    found = msgspec.toml.decode(file.read_bytes(), type=System)
    for axis in AXES:
        for value in found.on(axis):
            if value not in categories()[axis].values:
                raise BadInput(f"{value!r} is no {axis}", where=file.name, fix=", ".join(categories()[axis].values))
    return found


def doing(classes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Names of the systems that can do what lies there: all its values on the axes that every system has a place on."""
    return tuple(name for name in names() if all(set(classes[axis]) <= set(system(name).on(axis)) for axis in AXES))


def nearest(classes: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The systems that cannot do it for the fewest axes, and these axes."""
    kept = {
        name: tuple(axis for axis in AXES if not set(classes[axis]) <= set(system(name).on(axis))) for name in names()
    }
    fewest = min(kept.values(), key=len)
    return tuple(name for name, axes in kept.items() if axes == fewest), fewest


def matching(wanted: Mapping[str, str]) -> list[str]:
    """Names of the systems with these values on these axes."""
    for axis, value in wanted.items():
        if value not in categories()[axis].values:
            raise unknown(axis, value, categories()[axis].values)
    return [name for name in names() if all(value in system(name).on(axis) for axis, value in wanted.items())]
