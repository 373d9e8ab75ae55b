"""How devices of one generation are built, as far as kernels and libraries have to know: measured figures, in TOML.

    title = "NVIDIA Hopper"
    library = "nccl"
    flash3 = { value = true, source = "flash" }

    [matrix]                                                  units; [vector]: the ordinary ones
    products = { value = 0.72, source = "steps" }             of the peak that large products reach
    operands = { value = 0.80, source = "steps" }             of the memory's bandwidth, for operands of thin products
    devices = { value = ["h100", "h200"], source = "steps" }  where it was measured

A figure holds for every device of the architecture; one whose own was measured has it in its own file, as
[reached.matrix]. Units without a figure take that of another architecture: `like = "volta"`. What is not said is as
usual.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware.table import Table, figure_line, open_table

UNITS = ("matrix", "vector")
"""Kinds of units that multiply."""

PARTS = ("forward", "input_gradient", "weight_gradient")

KEYS = (
    *("title", "library", "like", "flash3", "tuned_fp32", "instructions", "ordered_networks", "layout"),
    *(*UNITS, "sources"),
)


class Reached(msgspec.Struct, frozen=True):
    """Shares of two peaks that large products reach."""

    products: float  # of the flop/s
    operands: float  # of the memory's bandwidth, for the operands of thin products
    devices: tuple[str, ...]  # where it was measured
    source: str


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of devices."""

    name: str
    title: str
    library: str  # what usually carries out collectives
    like: str  # whose entries of trainers' tables hold, where these have none of its own; empty: those for `any`
    reached: dict[str, Reached]  # by kind of units
    reached_like: dict[str, str]  # kinds of units that reach what those of another one do
    flash3: bool  # whether the third generation of fused attention is for it
    tuned_fp32: bool  # whether libraries have fp32 convolutions for it
    instructions: tuple[float, float]  # cycles for what takes an NVIDIA multiprocessor one, in 32 and in 16 bits
    ordered_networks: tuple[str, ...]  # that keep the order of 128-byte stores
    layout: dict[str, dict[str, float]]  # by precision and part: rates of operands that do not lie as units want them
    sources: dict[str, str]

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def words(self) -> tuple[str, ...]:
        """Under which trainers' tables have it."""
        return (self.name, self.like) if self.like else (self.name,)


def architecture(path: Path, name: str, names: Collection[str]) -> Architecture:
    """The file of an architecture; `names` are those that it can be like."""
    table = open_table(path)
    table.only(*KEYS)
    reached, like = dict[str, Reached](), dict[str, str]()
    for unit in UNITS:
        if unit in table:
            own = table.table(unit, figure_line("products", "ratio", "sweep"))
            if "like" in own:
                own.only("like")
                like[unit] = _like(own, names)
            else:
                reached[unit] = figures(own, ())
    found = Architecture(
        name=name,
        title=table.text("title", "NVIDIA Hopper"),
        library=table.text("library", "nccl"),
        like=_like(table, names) if "like" in table else "",
        reached=reached,
        reached_like=like,
        flash3=_entry(table, "flash3", False),
        tuned_fp32=_entry(table, "tuned_fp32", True),
        instructions=_pair(table),
        ordered_networks=tuple(_entry(table, "ordered_networks", ["infiniband", "roce"])),
        layout=_layout(table),
        sources=table.sources,
    )
    table.check_every_source_is_used()
    return found


def figures(table: Table, devices: tuple[str, ...]) -> Reached:
    """What units reach; `devices`: where it was measured, if the file does not say."""
    table.only("products", "operands", "devices")
    return Reached(
        table.figure("products", "ratio"),
        table.figure("operands", "ratio"),
        tuple(_entry(table, "devices", list(devices))),
        table.sources[table.full("products")],
    )


def _like(table: Table, names: Collection[str]) -> str:
    found = table.text("like", "hopper")
    if found not in names:
        raise unknown("architecture", found, names, listing="foretell list architectures").within(table.at("like"))
    return found


_Kind = TypeVar("_Kind", bool, list[str])


def _entry(table: Table, key: str, usual: _Kind) -> _Kind:
    """A value of the type of the usual one, which stands for one that is not there."""
    if key not in table:
        return usual
    example = "true" if isinstance(usual, bool) else '["h100"]'
    line = f'{key} = {{ value = {example}, source = "..." }}'
    value = table.entry(key, line).value
    sound = isinstance(value, bool) if isinstance(usual, bool) else _all(value, str)
    if not sound:
        what = "true or false" if isinstance(usual, bool) else "a list of words"
        raise BadInput(f"{value!r} is not {what}", where=table.at(key), fix=line)
    return value


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in cast(list[Any], value))


def _pair(table: Table) -> tuple[float, float]:
    if "instructions" not in table:
        return 1.0, 1.0
    line = 'instructions = { value = [2.5, 8.5], source = "..." }'
    value = table.entry("instructions", line).value
    if not _all(value, float) or len(value) != 2 or min(value) <= 0:
        raise BadInput(f"{value!r} are not two numbers", where=table.at("instructions"), fix=line)
    return value[0], value[1]


def _layout(table: Table) -> dict[str, dict[str, float]]:
    if "layout" not in table:
        return {}
    found: dict[str, dict[str, float]] = {}
    own = table.table("layout", "tf32 = ...")
    for precision in own:
        parts = own.table(precision, figure_line("forward", "ratio", "sweep"))
        parts.only(*PARTS)
        found[precision] = {part: parts.figure(part, "ratio") for part in PARTS if part in parts}
    return found
