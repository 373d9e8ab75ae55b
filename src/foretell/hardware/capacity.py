"""Devices that are known for capacity questions alone: what a step holds of their memory, and not how long it takes.

No trainer was measured on them, and what their compilers reach of a peak says nothing of ours. So they are members of a
set of their own, with fewer figures, and whoever asks for a time is refused.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware.cluster import PRECISIONS
from foretell.hardware.table import open_table

_HERE = Path(__file__).parent / "capacities"

KEYS = ("title", "memory", "memory_bandwidth", "peak", "sources")


class CapacityDevice(msgspec.Struct, frozen=True):
    """What its vendor says of one device."""

    name: str
    title: str
    memory_bytes: int  # as its label says (GB of stacks are GiB): what a runtime keeps for itself is not known
    memory_bandwidth: float  # B/s
    peak: dict[str, float]  # precision to dense flop/s
    sources: dict[str, str]  # figure to where it comes from


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all of them."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.toml")))


@functools.cache
def capacity_device(name: str) -> CapacityDevice:
    """One of them, by name."""
    if name not in names():
        raise unknown("device for capacity questions", name, names(), listing="foretell list capacities")
    return read(_HERE / f"{name}.toml")


def read(path: Path) -> CapacityDevice:
    """A file of one, as strictly as a device's."""
    table = open_table(path)
    table.only(*KEYS)
    rates = table.table("peak", 'bf16 = { value = "459 Tflop/s", source = "page" }')
    rates.only(*PRECISIONS)
    found = CapacityDevice(
        name=path.stem,
        title=table.text("title", "Google TPU v5p, one chip"),
        memory_bytes=round(table.figure("memory", "memory")),
        memory_bandwidth=table.figure("memory_bandwidth", "bandwidth"),
        peak={precision: rates.figure(precision, "rate") for precision in PRECISIONS if precision in rates},
        sources=table.sources,
    )
    table.check_every_source_is_used()
    return found


def no_time(name: str, where: str) -> BadInput:
    """Why a step on such a device has no time, and what can be asked."""
    what = f"{name} is known for capacity questions alone: no trainer was measured on it, so no step has a time"
    return BadInput(what, where=where, fix=f"foretell capacity MODEL --on {where or name} --plan 'dp8:zero3 +bf16'")
