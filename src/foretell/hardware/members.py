"""The devices, architectures, links and clusters that ship: one TOML file each, its name the member's name."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware import reading
from foretell.hardware.architecture import Architecture
from foretell.hardware.architecture import architecture as read_architecture
from foretell.hardware.cluster import Device, Link
from foretell.hardware.reading import ClusterFile

_HERE = Path(__file__).parent

CORE = "cpu-core"
"""A core of whatever machine asks: a device without a file."""


@functools.cache
def names(kind: str) -> tuple[str, ...]:
    """The names of one kind: devices, architectures, links or clusters."""
    return tuple(sorted(path.stem for path in (_HERE / kind).glob("*.toml")))


@functools.cache
def aliases() -> Mapping[str, str]:
    """Other spellings of device names, such as a100 for a100-80."""
    return reading.aliases(_HERE / "aliases.toml")


_SLOWER = re.compile(r"(?P<name>.+)@(?P<times>[0-9]+(?:\.[0-9]+)?)x", re.IGNORECASE)


def slowed(text: str) -> tuple[str, float]:
    """A name, and how many times as long it takes as it should: h100@1.3x throttles, roce-400@4x lost lanes."""
    form = _SLOWER.fullmatch(text)
    if form is None:
        if "@" in text:
            raise BadInput(
                f"{text!r} does not say how many times slower", where=text, fix=f"{text.partition('@')[0]}@1.5x"
            )
        return text, 1.0
    times = float(form["times"])
    if not 1 <= times < math.inf:
        raise BadInput(f"{times:g} is below 1: only slower is said so", where=text, fix=f"{form['name']}@1.5x")
    return form["name"], times


def device(name: str) -> Device:
    """A device by name or other spelling, or from a file of one's own; of a throttled one all kernels take longer."""
    name, times = slowed(name)
    found = _whole_device(name)
    return found if times == 1 else msgspec.structs.replace(found, pace=found.pace * times)


def _whole_device(name: str) -> Device:
    if name.endswith(".toml"):
        return reading.device(Path(name), names("links"), names("architectures"))
    if name == CORE:
        from foretell.hardware import this_machine  # which reads devices from here

        return this_machine.processor().device
    return _device(aliases().get(name, name))


def link(name: str) -> Link:
    """A link by name, or from a file of one's own; a degraded one carries less."""
    name, times = slowed(name)
    found = reading.link(Path(name)) if name.endswith(".toml") else _link(name)
    if times == 1:
        return found
    return msgspec.structs.replace(found, name=f"{found.name}@{times:g}x", bandwidth=found.bandwidth / times)


@functools.cache
def _device(name: str) -> Device:
    return reading.device(_file("device", name), names("links"), names("architectures"))


@functools.cache
def architecture(name: str) -> Architecture:
    """An architecture by name, or from a file of one's own."""
    path = Path(name) if name.endswith(".toml") else _file("architecture", name)
    return read_architecture(path, name, names("architectures"))


@functools.cache
def _link(name: str) -> Link:
    return reading.link(_file("link", name))


def _file(kind: str, name: str) -> Path:
    if name not in names(f"{kind}s"):
        raise unknown(kind, name, names(f"{kind}s"), listing=f"foretell list {kind}s")
    return _HERE / f"{kind}s" / f"{name}.toml"


@functools.cache
def machine(name: str) -> ClusterFile:
    """A cluster that ships, by name."""
    return reading.machine(_file("cluster", name), name, device, link)


def machine_file(text: str) -> ClusterFile:
    """A cluster from a file of one's own; files it names are found next to it."""
    path = Path(text)
    if not path.exists():
        raise BadInput("no such file", where=text, fix="a cluster's .toml, or a name: foretell list clusters")

    def beside(name: str) -> str:
        return str(path.parent / name) if slowed(name)[0].endswith(".toml") else name

    return reading.machine(path, text, lambda name: device(beside(name)), lambda name: link(beside(name)))
