"""TOML files to devices, links and clusters, strictly.

A figure is written with its source beside it, by the name that [sources] gives it:

    memory_bandwidth = { value = "2039 GB/s", source = "datasheet" }

    [sources]
    datasheet = "NVIDIA A100 80GB datasheet, June 2021"

Unknown keys, missing figures, wrong units and figures without a source are errors that name the
file, the key and an example. In a person's own file a figure needs no source: `size = 8`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware.architecture import UNITS, figures
from foretell.hardware.cluster import (
    COLLECTIVE_CLASSES,
    DEVICE_KINDS,
    NETWORK_KINDS,
    PRECISIONS,
    Cluster,
    Device,
    DeviceGroup,
    Level,
    Link,
    NodeShape,
)
from foretell.hardware.table import NEXT_LINE, Table, figure_line, open_table
from foretell.hardware.topology import TOPOLOGIES

DEVICE_KEYS = (
    *("title", "architecture", "host_link", "memory", "memory_bandwidth", "cache", "multiprocessors", "clock"),
    *("power", "launch", "peak", "vector", "reached", "node", "sources"),
)
NODE_KEYS = ("size", "link", "network", "ports", "domain")
LINK_KEYS = (
    "title",
    "kind",
    "bandwidth",
    "latency",
    "hop",
    "switched",
    "multicast",
    "ceiling",
    "efficiency",
    "sources",
)
CLUSTER_KEYS = ("title", "device", "devices", "levels", "network", "library", "topology", "sources")
LEVEL_KEYS = ("name", "size", "link", "ports", "oversubscription")
"""The keys of each table, the optional ones too."""


class ClusterFile(msgspec.Struct, frozen=True):
    """What a cluster file holds: a cluster, and how several of it are joined, if they can be."""

    cluster: Cluster
    network: Link | None  # None: the whole site, which nobody can buy two of
    ports: int


def device(path: Path, links: Collection[str], architectures: Collection[str]) -> Device:
    """A device file; links and architectures have these names, or are files of their own."""
    table = open_table(path)
    table.only(*DEVICE_KEYS)
    found = Device(
        name=path.stem,
        title=table.text("title", "NVIDIA A100 SXM4 80 GB"),
        architecture=_architecture(table, path, architectures),
        memory_bytes=round(table.figure("memory", "memory")),
        memory_bandwidth=table.figure("memory_bandwidth", "bandwidth"),
        cache_bytes=round(table.figure("cache", "memory")),
        multiprocessors=table.count("multiprocessors"),
        clock_hz=table.figure("clock", "frequency"),
        peak=_peak(table),
        vector=_rates(table.table("vector", figure_line("fp32", "rate", "datasheet"))),
        launch_seconds=table.figure("launch", "time"),
        host_link=_link_name(table, "host_link", "pcie5", links),
        power_watts=table.figure("power", "power"),
        node=_node(table.table("node", _NODE), links),
        sources=table.sources,
        **_reached(table, path.stem),
    )
    if "fp32" not in found.vector:
        line = figure_line("fp32", "rate", "datasheet")
        raise BadInput("a device needs vector.fp32", where=table.at("vector"), fix=line)
    return found


_NODE = NEXT_LINE.join(
    [
        figure_line("size", "count", "datasheet"),
        'link = "nvlink4-switch"',
        'network = "ib-ndr"',
        figure_line("ports", "count", "datasheet"),
    ]
)


def _architecture(table: Table, path: Path, names: Collection[str]) -> str:
    """A name that there is, or a file beside this one; a slip there would quietly get the figures of others."""
    found = table.text("architecture", "hopper")
    if found.endswith(".toml"):
        return str(path.parent / found)
    if found not in names:
        raise unknown("architecture", found, names, listing="foretell list architectures").within(
            table.at("architecture")
        )
    return found


def _reached(table: Table, name: str) -> dict[str, Any]:
    """What was measured of a device's own units."""
    if "reached" not in table:
        return {}
    own = table.table("reached", figure_line("products", "ratio", "sweep"))
    own.only(*UNITS, "shares")
    shares = own.table("shares", "") if "shares" in own else None
    return {
        "reached": {unit: figures(own.table(unit, ""), (name,)) for unit in UNITS if unit in own},
        "shares": {word: shares.figure(word, "ratio") for word in shares} if shares else {},
    }


def _link_name(table: Table, key: str, example: str, links: Collection[str]) -> str:
    """The name of a link that there is, or of a file with one."""
    found = table.text(key, example)
    if found not in links and not found.endswith(".toml"):
        raise unknown("link", found, links, listing="foretell list links").within(table.at(key))
    return found


def _peak(table: Table) -> dict[str, float]:
    """Rates of the matrix units. A device without them has no such table; an empty one is a slip."""
    if "peak" not in table:
        return {}
    rates = _rates(table.table("peak", ""))
    if not rates:
        line = figure_line("bf16", "rate", "datasheet")
        fix = f"{line}; no [peak] at all for a device without matrix units"
        raise BadInput("[peak] has no rate", where=table.at("peak"), fix=fix)
    return rates


def _rates(table: Table) -> dict[str, float]:
    for key in table:
        if key not in PRECISIONS:
            raise unknown("precision", key, PRECISIONS).within(table.at(key))
    return {precision: table.figure(precision, "rate") for precision in PRECISIONS if precision in table}


def _node(table: Table, links: Collection[str]) -> NodeShape:
    table.only(*NODE_KEYS)
    size = table.count("size")
    found = NodeShape(
        size=size,
        link=_link_name(table, "link", "nvlink4-switch", links),
        network=_link_name(table, "network", "ib-ndr", links),
        ports=table.count("ports"),
        domain=table.count("domain") if "domain" in table else size,
    )
    if found.domain % size:
        raise BadInput(
            f"{found.domain} is not a multiple of size = {size}", where=table.at("domain"), fix=f"{2 * size}"
        )
    return found


_CLASS = re.compile(r"([a-z_]+)(?:@([1-9][0-9]*))?")


def link(path: Path) -> Link:
    """A link file."""
    table = open_table(path)
    table.only(*LINK_KEYS)
    kind = table.text("kind", "infiniband")
    kinds = (*DEVICE_KINDS, *NETWORK_KINDS)
    if kind not in kinds:
        raise unknown("kind of link", kind, kinds).within(table.at("kind"))
    bandwidth = table.figure("bandwidth", "bandwidth")
    return Link(
        name=path.stem,
        title=table.text("title", "InfiniBand NDR, 400 Gb/s a port"),
        kind=kind,
        bandwidth=bandwidth,
        latency_seconds=_positive(table, "latency"),
        hop_seconds=table.figure("hop", "time") if kind in NETWORK_KINDS or "hop" in table else 0.0,
        switched=table.flag("switched"),
        multicast=table.flag("multicast"),
        ceiling=table.figure("ceiling", "bandwidth") if "ceiling" in table else bandwidth,
        efficiency=_efficiency(table.table("efficiency", figure_line("ring", "ratio", "measured"))),
        sources=table.sources,
    )


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
        line = figure_line("ring", "ratio", "measured")
        raise BadInput("efficiency.ring is missing", where=table.at("ring"), fix=line)
    return found


def machine(path: Path, text: str, get_device: Callable[[str], Device], get_link: Callable[[str], Link]) -> ClusterFile:
    """A cluster file; `text` is what names it. Devices and links are asked for by name."""
    table = open_table(path)
    table.only(*CLUSTER_KEYS)
    levels = tuple(_level(item, get_link) for item in table.tables("levels", _LEVEL))
    _check_levels(levels, table)
    ranks = math.prod(level.size for level in levels)
    network, ports = None, 1
    if "network" in table:
        joined = table.table("network", 'link = "ib-ndr"')
        joined.only("link", "ports")
        network = _member(joined, "link", get_link)
        if not network.per_port:
            raise BadInput(f"{network.name} is not a network", where=joined.at("link"), fix="ib-ndr")
        ports = joined.count("ports")
    found = Cluster(
        name=path.stem,
        title=table.text("title", "NVIDIA DGX A100"),
        groups=_groups(table, ranks, get_device),
        levels=levels,
        text=text,
        sources=table.sources,
        library=table.text("library", "nccl") if "library" in table else "",
        topology=_topology(table),
    )
    return ClusterFile(found, network, ports)


def _topology(table: Table) -> str:
    found = table.text("topology", "tree") if "topology" in table else "tree"
    if found not in TOPOLOGIES:
        raise unknown("topology", found, TOPOLOGIES, listing="foretell list fabrics").within(table.at("topology"))
    return found


_LEVEL = NEXT_LINE.join(['name = "node"', figure_line("size", "count", "us"), 'link = "nvlink4-switch"'])


def _member(table: Table, key: str, get: Callable[[str], Any]) -> Any:
    """A device or link by name; an error says where the name was written."""
    try:
        return get(table.text(key, "h100" if key == "device" else "ib-ndr"))
    except BadInput as problem:
        raise problem.within(table.at(key)) from None


def _level(table: Table, get_link: Callable[[str], Link]) -> Level:
    table.only(*LEVEL_KEYS)
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


def _groups(table: Table, ranks: int, get_device: Callable[[str], Device]) -> tuple[DeviceGroup, ...]:
    if "devices" not in table:
        return (DeviceGroup(_member(table, "device", get_device), ranks),)
    if "device" in table:
        raise BadInput("both device and [[devices]]", where=table.at("device"), fix="one of them")
    groups: list[DeviceGroup] = []
    for item in table.tables("devices", 'device = "h100"'):
        item.only("device", "ranks")
        groups.append(DeviceGroup(_member(item, "device", get_device), item.count("ranks")))
    held = sum(group.ranks for group in groups)
    if held != ranks:
        raise BadInput(
            f"the groups have {held} ranks, the levels {ranks}", where=table.at("devices"), fix="the same in both"
        )
    return tuple(groups)


def aliases(path: Path) -> Mapping[str, str]:
    """Other spellings of names: a file of name = "name"."""
    return {key: str(value) for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items()}
