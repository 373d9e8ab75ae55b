"""TOML files to devices, links and clusters, strictly.

A figure is written with its source beside it, by the name that [sources] gives it:

    memory_bandwidth = { value = "2039 GB/s", source = "datasheet" }

    [sources]
    datasheet = "NVIDIA A100 80GB datasheet, June 2021"

Unknown keys, missing figures, wrong units and figures without a source are errors that name the
file, the key and an example.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from foretell.errors import BadInput, near, unknown
from foretell.hardware import quantity
from foretell.hardware.cluster import (
    COLLECTIVE_CLASSES,
    DEVICE_KINDS,
    NETWORK_KINDS,
    PRECISIONS,
    Cluster,
    Device,
    Group,
    Level,
    Link,
    NodeShape,
)


class Machine(msgspec.Struct, frozen=True):
    """What a cluster file holds: a cluster, and how several of it are joined, if they can be."""

    cluster: Cluster
    network: Link | None  # None: the whole site, which nobody can buy two of
    ports: int


class Table:
    """One table of a file; what was asked for is remembered, so that what is left over is an error."""

    def __init__(self, content: dict[str, Any], file: str, path: str = "", root: Table | None = None) -> None:
        self._content = content
        self._file = file
        self._path = path
        self._asked: set[str] = set()
        self._named_sources: dict[str, str] = root._named_sources if root else self._read_sources()
        self.sources: dict[str, str] = root.sources if root else {}

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def __iter__(self) -> Any:
        return iter(self._content)

    def at(self, key: str) -> str:
        """The file and the key, for messages."""
        return f"{self._file}, {self._full(key)}"

    def _full(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _read_sources(self) -> dict[str, str]:
        self._asked.add("sources")
        found = self._content.get("sources", {})
        if not isinstance(found, dict):
            raise BadInput("sources is not a table", where=self._file, fix='[sources], then datasheet = "..."')
        named = cast(dict[str, Any], found)
        for name, text in named.items():
            if not isinstance(text, str) or not text.strip():
                raise BadInput(f"the source {name!r} is not a text", where=self._file, fix=f'{name} = "title, year"')
        return named

    def _value(self, key: str, example: str) -> Any:
        self._asked.add(key)
        if key not in self._content:
            raise BadInput(f"{self._full(key)} is missing", where=self._file, fix=f"{key} = {example}")
        return self._content[key]

    def text(self, key: str, example: str) -> str:
        """A plain text, which needs no source."""
        value = self._value(key, f'"{example}"')
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"{value!r} is not a text", where=self.at(key), fix=f'{key} = "{example}"')
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._value(key, "true")
        if not isinstance(value, bool):
            raise BadInput(f"{value!r} is not true or false", where=self.at(key), fix=f"{key} = true")
        return value

    def figure(self, key: str, kind: str) -> float:
        """A figure with its source, in SI units."""
        example = quantity.EXAMPLES[kind].partition(" or ")[0].partition(" (")[0]
        example = f'{{ value = {example}, source = "datasheet" }}'
        entry = self._value(key, example)
        if not isinstance(entry, dict):
            raise BadInput(f"{entry!r} has no source beside it", where=self.at(key), fix=f"{key} = {example}")
        fields = cast(dict[str, Any], entry)
        for name in ("value", "source"):
            if name not in fields:
                raise BadInput(f"the figure has no {name}", where=self.at(key), fix=f"{key} = {example}")
        for name in fields:
            if name not in ("value", "source"):
                raise BadInput(f"unknown key {name!r}", where=self.at(key), fix=f"{key} = {example}")
        self.sources[self._full(key)] = self._source(key, fields["source"])
        return self._number(key, fields["value"], kind)

    def count(self, key: str) -> int:
        """A whole number with its source."""
        return int(self.figure(key, "count"))

    def _source(self, key: str, name: Any) -> str:
        if not isinstance(name, str) or name not in self._named_sources:
            known = list(self._named_sources)
            fix = ", ".join(near(str(name), known) or known) or f'[sources], then {name} = "title, year"'
            raise BadInput(f"[sources] has no {name!r}", where=self.at(key), fix=fix)
        return self._named_sources[name]

    def _number(self, key: str, value: Any, kind: str) -> float:
        example = quantity.EXAMPLES[kind]
        if kind not in ("count", "ratio"):
            if not isinstance(value, str):
                raise BadInput(f"{value!r} is not a text with a unit", where=self.at(key), fix=example)
            return quantity.parse(value, kind, where=self.at(key))
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise BadInput(f"{value!r} is not a positive number", where=self.at(key), fix=example)
        if kind == "count" and not isinstance(value, int):
            raise BadInput(f"{value!r} is not a whole number", where=self.at(key), fix=example)
        return value

    def table(self, key: str, example: str) -> Table:
        """A table inside this one."""
        value = self._value(key, example)
        if not isinstance(value, dict):
            raise BadInput(f"{key} is not a table", where=self._file, fix=f"[{key}], then {example}")
        return Table(cast(dict[str, Any], value), self._file, self._full(key), root=self)

    def optional_table(self, key: str) -> Table:
        """A table inside this one; empty where the file has none."""
        return self.table(key, "") if key in self else Table({}, self._file, self._full(key), root=self)

    def tables(self, key: str, example: str) -> list[Table]:
        """An array of tables: [[key]]."""
        found = self._value(key, f"[[{key}]] with {example}")
        items = cast(list[Any], found) if isinstance(found, list) else []
        if not items or not all(isinstance(item, dict) for item in items):
            raise BadInput(f"{key} is not a list of tables", where=self._file, fix=f"[[{key}]], then {example}")
        return [
            Table(cast(dict[str, Any], item), self._file, f"{self._full(key)}[{at}]", root=self)
            for at, item in enumerate(items)
        ]

    def done(self) -> None:
        """Complain about keys that nobody asked for."""
        for key in self._content:
            if key not in self._asked:
                close = near(key, self._asked)
                fix = f"did you mean {close[0]}?" if close else f"the keys here: {', '.join(sorted(self._asked))}"
                raise BadInput(f"unknown key {self._full(key)!r}", where=self._file, fix=fix)


def open_table(path: Path) -> Table:
    """A TOML file as a table."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("no such file", where=str(path)) from None
    except OSError as problem:
        raise BadInput(f"cannot read the file: {problem.strerror}", where=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadInput(f"not a TOML file: {problem}", where=str(path)) from None
    return Table(content, _shown(path))


def _shown(path: Path) -> str:
    """A file that ships is shown by its place in the package: hardware/devices/h100.toml."""
    package = Path(__file__).parent
    return str(path.relative_to(package.parent)) if path.is_relative_to(package) else str(path)


def device(path: Path) -> Device:
    """A device file."""
    table = open_table(path)
    found = Device(
        name=path.stem,
        title=table.text("title", "NVIDIA A100 SXM4 80 GB"),
        architecture=table.text("architecture", "ampere"),
        memory_bytes=round(table.figure("memory", "memory")),
        memory_bandwidth=table.figure("memory_bandwidth", "bandwidth"),
        cache_bytes=round(table.figure("cache", "memory")),
        multiprocessors=table.count("multiprocessors"),
        clock_hz=table.figure("clock", "frequency"),
        peak=_rates(table.optional_table("peak")),
        vector=_rates(table.table("vector", 'fp32 = { value = "19.5 Tflop/s", source = "datasheet" }')),
        launch_seconds=table.figure("launch", "time"),
        host_link=table.text("host_link", "pcie4"),
        power_watts=table.figure("power", "power"),
        node=_node(table.table("node", 'size = { value = 8, source = "..." }')),
        sources=table.sources,
    )
    table.done()
    if "fp32" not in found.vector:
        raise BadInput(
            "a device needs vector.fp32", where=table.at("vector"), fix="fp32 = { value = ..., source = ...}"
        )
    return found


def _rates(table: Table) -> dict[str, float]:
    for key in table:
        if key not in PRECISIONS:
            raise unknown("precision", key, PRECISIONS).within(table.at(key))
    rates = {precision: table.figure(precision, "rate") for precision in PRECISIONS if precision in table}
    table.done()
    return rates


def _node(table: Table) -> NodeShape:
    size = table.count("size")
    found = NodeShape(
        size=size,
        link=table.text("link", "nvlink3-switch"),
        network=table.text("network", "ib-hdr"),
        ports=table.count("ports"),
        domain=table.count("domain") if "domain" in table else size,
    )
    table.done()
    if found.domain % size:
        raise BadInput(
            f"{found.domain} is not a multiple of size = {size}", where=table.at("domain"), fix=f"{2 * size}"
        )
    return found


_CLASS = re.compile(r"([a-z_]+)(?:@([1-9][0-9]*))?")


def link(path: Path) -> Link:
    """A link file."""
    table = open_table(path)
    kind = table.text("kind", "infiniband")
    kinds = (*DEVICE_KINDS, *NETWORK_KINDS)
    if kind not in kinds:
        raise unknown("kind of link", kind, kinds).within(table.at("kind"))
    bandwidth = table.figure("bandwidth", "bandwidth")
    found = Link(
        name=path.stem,
        title=table.text("title", "InfiniBand NDR, 400 Gb/s a port"),
        kind=kind,
        bandwidth=bandwidth,
        latency_seconds=_positive(table, "latency"),
        hop_seconds=table.figure("hop", "time") if kind in NETWORK_KINDS or "hop" in table else 0.0,
        switched=table.flag("switched"),
        multicast=table.flag("multicast"),
        ceiling=table.figure("ceiling", "bandwidth") if "ceiling" in table else bandwidth,
        efficiency=_efficiency(table.table("efficiency", 'ring = { value = 0.81, source = "..." }')),
        sources=table.sources,
    )
    table.done()
    return found


def _positive(table: Table, key: str) -> float:
    value = table.figure(key, "time")
    if value <= 0:
        raise BadInput("a latency of nothing", where=table.at(key), fix='"1 us"')
    return value


def _efficiency(table: Table) -> dict[str, float]:
    found: dict[str, float] = {}
    for key in table:
        form = _CLASS.fullmatch(key)
        if form is None or form[1] not in COLLECTIVE_CLASSES:
            raise unknown("class of collectives", key, COLLECTIVE_CLASSES).within(table.at(key))
        found[key] = table.figure(key, "ratio")
        if found[key] > 1:
            raise BadInput(f"{found[key]:g} is more than all of the bandwidth", where=table.at(key), fix="0.81")
    if "ring" not in found:
        raise BadInput(
            "efficiency.ring is missing", where=table.at("ring"), fix='ring = { value = 0.81, source = "..." }'
        )
    return found


def machine(path: Path, text: str, get_device: Callable[[str], Device], get_link: Callable[[str], Link]) -> Machine:
    """A cluster file; `text` is what names it. Devices and links are asked for by name."""
    table = open_table(path)
    levels = tuple(_level(item, get_link) for item in table.tables("levels", 'name = "node"'))
    _check_levels(levels, table)
    ranks = math.prod(level.size for level in levels)
    network, ports = None, 1
    if "network" in table:
        joined = table.table("network", 'link = "ib-hdr"')
        network = _member(joined, "link", get_link)
        if not network.per_port:
            raise BadInput(f"{network.name} is not a network", where=joined.at("link"), fix="ib-ndr")
        ports = joined.count("ports")
        joined.done()
    found = Cluster(
        name=path.stem,
        title=table.text("title", "NVIDIA DGX A100"),
        groups=_groups(table, ranks, get_device),
        levels=levels,
        text=text,
        sources=table.sources,
    )
    table.done()
    return Machine(found, network, ports)


def _member(table: Table, key: str, get: Callable[[str], Any]) -> Any:
    """A device or link by name; an error says where the name was written."""
    try:
        return get(table.text(key, "h100" if key == "device" else "ib-ndr"))
    except BadInput as problem:
        raise problem.within(table.at(key)) from None


def _level(table: Table, get_link: Callable[[str], Link]) -> Level:
    joined: Link = _member(table, "link", get_link)
    found = Level(
        name=table.text("name", "node"),
        size=table.count("size"),
        link=joined,
        ports=table.count("ports") if joined.per_port or "ports" in table else 1,
        oversubscription=table.figure("oversubscription", "ratio") if "oversubscription" in table else 1.0,
    )
    if found.oversubscription < 1:
        raise BadInput(
            f"over-subscription {found.oversubscription:g} is below 1",
            where=table.at("oversubscription"),
            fix="1 for none, 3 where a third of the bandwidth leaves",
        )
    table.done()
    return found


def _check_levels(levels: tuple[Level, ...], table: Table) -> None:
    names = [level.name for level in levels]
    if len(set(names)) < len(names):
        raise BadInput(
            f"two levels have the same name: {', '.join(names)}", where=table.at("levels"), fix="node, rack, pod"
        )
    if "node" not in names:
        raise BadInput(
            "no level is called node", where=table.at("levels"), fix='name = "node" for the one with the hosts'
        )
    crossed = False
    for level in levels:
        if crossed and not level.link.per_port:
            raise BadInput(
                f"level {level.name} joins over {level.link.name} what a network already joined",
                where=table.at("levels"),
                fix="levels innermost first",
            )
        crossed = crossed or level.link.per_port


def _groups(table: Table, ranks: int, get_device: Callable[[str], Device]) -> tuple[Group, ...]:
    if "devices" not in table:
        return (Group(_member(table, "device", get_device), ranks),)
    groups: list[Group] = []
    for item in table.tables("devices", 'device = "h100"'):
        groups.append(Group(_member(item, "device", get_device), item.count("ranks")))
        item.done()
    held = sum(group.ranks for group in groups)
    if held != ranks:
        raise BadInput(
            f"the groups have {held} ranks, the levels {ranks}", where=table.at("devices"), fix="the same in both"
        )
    return tuple(groups)


def aliases(path: Path) -> Mapping[str, str]:
    """Other spellings of names: a file of name = "name"."""
    return {key: str(value) for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items()}
