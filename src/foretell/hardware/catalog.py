"""What a person writes to name a cluster, and the cluster it means.

    h100                    one device
    64xh100                 64 ranks in the nodes this device usually sits in
    8x8xh100,ib-ndr         8 nodes of 8 with that network (4xib-ndr: with four ports a node)
    8xh100+8xa100-80        nodes of several kinds of devices; ,ib-ndr at the end joins them
    8xh100@1.3x,ib-ndr@4x   devices that throttle, a link with a quarter of its bandwidth
    dgx-a100                a machine, whole;  32xdgx-a100: that many, joined by their usual network
    abci                    a site, whole;     abci:64: 64 ranks of it, packed
    my-cluster.toml         a file of one's own, the same three ways
    this-machine            what is found here

Upper and lower case are the same, except in the paths of files. `Cluster.text` is the shortest of
these that gives the same cluster back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from foretell.errors import BadInput, UnknownName, near
from foretell.hardware import capacity, members, this_machine
from foretell.hardware.cluster import Cluster, Device, DeviceGroup, Level, Link
from foretell.hardware.device_nodes import GIVEN, DeviceNodes, usual_ports
from foretell.hardware.packing import neighbours, packed
from foretell.hardware.reading import ClusterFile

_FORM = re.compile(
    r"(?:(?P<first>[0-9]+)x)?(?:(?P<second>[0-9]+)x)?(?P<name>.+?)(?::(?P<part>[0-9]+))?(?P<links>(?:,[^,]*)*)",
    re.IGNORECASE,
)
_LINK = re.compile(r"(?:(?P<ports>[0-9]+)x)?(?P<name>[a-z].*)")
NAMED = "64xh100, 8x8xh100,ib-ndr, 32xdgx-a100, abci:64"
FORMS = f"{NAMED}, or a .toml file"

LONGEST_PATH = 250  # file systems refuse longer names
MOST_RANKS = 2**24
"""More ranks than any machine has: a slip of the pen."""


class NamedCluster(msgspec.Struct, frozen=True):
    """A cluster with what was chosen for the person who named it."""

    cluster: Cluster
    notes: tuple[str, ...]


class _Written(msgspec.Struct, frozen=True):
    """The parts of a text that names a cluster."""

    text: str
    name: str
    counts: tuple[int, ...]
    part: int  # 0 where none is written
    links: tuple[tuple[int, Link], ...]  # ports (0 where none is written) and link


def cluster(text: str) -> Cluster:
    """The cluster that a text names."""
    return named(text).cluster


def named(text: str) -> NamedCluster:
    """The cluster that a text names, with notes on what was chosen."""
    if parts := _kinds_of(text):
        return _mixture(text, parts)
    written = _read(text)
    machine = _machine(written.name)
    found = _of_device(written) if machine is None else _of_machine(written, machine)
    return NamedCluster(found.cluster, (*found.notes, *_sockets(written)))


def _sockets(written: _Written) -> Iterator[str]:
    """What Ethernet by its plain name means, where people may mean RDMA over it."""
    for _, link in written.links:
        rdma = link.name.replace("eth-", "roce-")
        if link.kind == "ethernet" and rdma != link.name and rdma in members.names("links"):
            rate = f"{link.ceiling / 1e9:g} GB/s a port"
            yield f"{link.name} is Ethernet with TCP sockets, {rate} at most; with RDMA it is {rdma}"


def _machine(name: str) -> ClusterFile | None:
    """The machine or site of this name; None for what must be a device."""
    if name == "this-machine":
        return this_machine.machine()
    if name.endswith(".toml"):
        return members.machine_file(name)
    return members.machine(name) if name in members.names("clusters") else None


def _read(text: str) -> _Written:
    stripped = text.strip()
    form = _FORM.fullmatch(stripped)
    if form is None:
        raise BadInput(f"{text!r} does not name a cluster", fix=FORMS)
    name: str = form["name"]
    if re.match(r"[0-9]+x", name.lower()) and not name.endswith(".toml"):
        raise BadInput("three counts: nodes and devices a node are two", where=text, fix=FORMS)
    counts = tuple(_count(form[key], text) for key in ("first", "second") if form[key])
    links = tuple(_link(item, text) for item in (form["links"] or "").split(",")[1:])
    part = _count(form["part"], text) if form["part"] else 0
    return _Written(stripped, name if name.endswith(".toml") else name.lower(), counts, part, links)


def _count(digits: str, text: str) -> int:
    number = int(digits) if len(digits) < 10 else MOST_RANKS + 1
    if not 1 <= number <= MOST_RANKS:
        raise BadInput(f"{digits} is not a number of ranks or nodes", where=text, fix=f"1 to {MOST_RANKS:,}")
    return number


def _link(item: str, text: str) -> tuple[int, Link]:
    form = _LINK.fullmatch(item.strip().lower() if not item.endswith(".toml") else item.strip())
    if form is None:
        raise BadInput(f"{item!r} is not a link", where=text, fix="8x8xh100,ib-ndr or 8x8xh100,4xib-ndr")
    try:
        link = members.link(form["name"])
    except BadInput as problem:
        raise problem.within(text) from None
    ports = _count(form["ports"], text) if form["ports"] else 0
    if ports and not link.per_port:
        raise BadInput(f"{link.name} has no ports to count", where=text, fix=link.name)
    return ports, link


def _of_device(written: _Written) -> NamedCluster:
    device = _device(written)
    notes = [f"{written.name} is taken as {device.told}"] if device.name != members.slowed(written.name)[0] else []
    if written.part:
        raise BadInput(
            f"{written.name} is a device, not a machine to take {written.part} ranks of",
            where=written.text,
            fix=f"{written.part}x{device.name}",
        )
    counts = written.counts or (1,)
    ranks = counts[0] if len(counts) == 1 else counts[0] * counts[1]
    _check_ranks(ranks, written.text)
    shape = DeviceNodes.of(device, counts[1] if len(counts) == 2 else 0, written.links, written.text)
    levels = shape.levels(ranks)
    if levels is None:
        raise shape.misfit(ranks, written.text)
    if shape.network_given and not any(level.link.per_port for level in levels):
        notes.append(f"{shape.network.name} is not used: {ranks} {device.name} need no network")
    elif shape.network_given:
        notes.append(f"{shape.network.name} with {shape.ports} port{'s' if shape.ports > 1 else ''} a node")
    text = shape.text(ranks, levels)
    found = Cluster(
        name=text,
        title=f"{ranks} x {device.title}" if ranks > 1 else device.title,
        groups=(DeviceGroup(device, ranks),),
        levels=levels,
        text=text,
        sources=shape.sources(levels),
    )
    return NamedCluster(found, tuple(notes))


def _device(written: _Written) -> Device:
    try:
        return members.device(written.name)
    except UnknownName:
        raise _unknown(written) from None


def _unknown(written: _Written) -> BadInput:
    """The error for what is neither a device nor a machine: a file, another spelling, or a name nobody knows."""
    path = Path(written.text)
    if len(written.text) < LONGEST_PATH and path.exists():
        what = "a folder" if path.is_dir() else "a file that is no .toml"
        return BadInput(f"{written.text!r} is {what}, not a cluster", fix=FORMS)
    if written.name in members.names("links"):
        what = f"{written.name} is a link, and a cluster is devices with links between them"
        return BadInput(what, where=written.text, fix=f"64xh100,{written.name}")
    if written.name in capacity.names():
        raise capacity.no_time(written.name, written.text)
    known = {*members.names("devices"), *members.names("clusters"), *members.aliases(), "this-machine"}
    close = list(_respelled(written.text)) or near(re.sub(r"^[0-9]+\W+", "", written.name), known)
    fix = ", ".join(close) or "foretell list devices, foretell list clusters"
    return UnknownName(f"no device or cluster is called {written.name!r}", where=written.text, fix=fix)


def _kinds_of(text: str) -> list[str]:
    """The clusters of a text that joins several: 8xh100+8xa100-80. Links belong to all, and stand with the last."""
    parts = [part.strip() for part in re.split(r"[+&]|\band\b|,\s*(?=[0-9]+x)", text.lower())]
    forms = [_FORM.fullmatch(part) for part in parts]
    named = [form and _is_member(members.slowed(form["name"])[0]) for form in forms]
    return parts if len(parts) > 1 and all(named) else []


def _mixture(text: str, parts: list[str]) -> NamedCluster:
    """Nodes of several kinds of devices side by side, or one node that has several."""
    last = _read(parts[-1])
    links = ",".join(parts[-1].split(",")[1:])
    parts = [*parts[:-1], parts[-1].partition(",")[0]]
    own = [_of_device(_read(f"{part},{links}" if links else part)) for part in parts]
    each = [one.cluster for one in own]
    whole, usual = sum(one.ranks for one in each), min(one.device.node.size for one in each)
    sizes = {one.levels[0].size for one in each}
    inside = min((one.levels[0].link for one in each), key=lambda link: link.bandwidth)
    if whole > usual and (len(sizes) > 1 or any(len(one.levels) > 2 for one in each)):
        told = " and ".join(str(one.levels[0].size) for one in each)
        what = f"{' and '.join(parts)} are nodes of unlike sizes ({told}), and a text says one"
        raise BadInput(what, where=text, fix="a file of your own with [[devices]] and [[levels]]: --on both.toml")
    levels: tuple[Level, ...] = (Level("node", whole, inside),)
    if whole > usual:
        size, first = sizes.pop(), each[0].device
        networks = [(ports, link) for ports, link in last.links if link.per_port]
        ports, network = networks[0] if networks else (0, members.link(first.node.network))
        ports = ports or min(usual_ports(one.device, size, network) for one in each)
        levels = (Level("node", size, inside), Level("fabric", whole // size, network, ports))
    groups = tuple(DeviceGroup(one.device, one.ranks) for one in each)
    name = "+".join(f"{one.ranks}x{one.device.told}" for one in each) + (f",{links}" if links else "")
    sources = {f"levels[{at}].size": GIVEN for at in range(len(levels))}
    found = Cluster(name, " + ".join(one.title for one in each), groups, levels, name, sources)
    notes = (note for one in own for note in one.notes if "is taken as" in note)
    return NamedCluster(found, tuple(dict.fromkeys(notes)))


_RESPELLED = (
    (r"([0-9]+)\s*[x*\u00d7\u2715]?\s*([a-z].*)", r"\1x\2"),  # 64*h100, 64 x h100, 64h100, and the sign for times
    (r"([a-z].*?)\s*[x*\u00d7\u2715]\s*([0-9]+)", r"\2x\1"),  # h100x64
    (r"([0-9]+)\s*[x*\u00d7\u2715]\s*([0-9]+)\s*[x*\u00d7\u2715]\s*([a-z].*)", r"\1x\2x\3"),
)
"""How a count is written elsewhere, and how here."""


def _respelled(text: str) -> Iterator[str]:
    """The same with the count as it is written here, where that names a cluster."""
    for pattern, here in _RESPELLED:
        form = re.fullmatch(pattern, text.lower())
        better = form.expand(here) if form else text.lower()
        parts = _FORM.fullmatch(better)
        if better != text.lower() and parts is not None and _is_member(parts["name"]):
            yield better


def _is_member(name: str) -> bool:
    return any(name in names for names in (members.names("devices"), members.names("clusters"), members.aliases()))


def _check_ranks(ranks: int, text: str) -> None:
    if ranks > MOST_RANKS:
        raise BadInput(f"{ranks:,} ranks", where=text, fix=f"at most {MOST_RANKS:,}")


def _of_machine(written: _Written, machine: ClusterFile) -> NamedCluster:
    whole = machine.cluster
    if len(written.counts) == 2:
        raise BadInput(
            f"{written.name} already says how many devices a node has",
            where=written.text,
            fix=f"{written.counts[0]}x{written.name}",
        )
    if written.part and (written.counts or written.links):
        raise BadInput(
            f"a part of {written.name} is whole in itself", where=written.text, fix=f"{written.name}:{written.part}"
        )
    if written.part:
        return NamedCluster(_part(written, whole), ())
    if not written.counts and not written.links:
        return NamedCluster(whole, ())
    found = _several(written, machine)
    unused = [f"{link.name} is not used: one {whole.name} needs no network" for _, link in written.links]
    return NamedCluster(found, tuple(unused) if found == whole else ())


def _part(written: _Written, whole: Cluster) -> Cluster:
    levels = packed(whole.levels, written.part)
    if levels is None or whole.mixed:
        fitting = [] if whole.mixed else neighbours(whole.levels, written.part)
        reason = "mixes devices" if whole.mixed else f"has {whole.ranks} ranks in nodes of {whole.ranks_per_node}"
        raise BadInput(
            f"{written.part} ranks of {written.name}: it {reason}",
            where=written.text,
            fix=" or ".join(f"{written.name}:{n}" for n in fitting) or written.name,
        )
    if written.part == whole.ranks:
        return whole
    text = f"{written.name}:{written.part}"
    groups = (DeviceGroup(whole.device, written.part),)
    sources = {**whole.sources, **{f"levels[{at}].size": GIVEN for at in range(len(levels))}}
    return msgspec.structs.replace(whole, name=text, text=text, groups=groups, levels=levels, sources=sources)


def _several(written: _Written, machine: ClusterFile) -> Cluster:
    one = machine.cluster
    if machine.network is None:
        raise BadInput(
            f"there is one {written.name}, with {one.ranks} ranks",
            where=written.text,
            fix=f"{written.name}:{one.ranks_per_node}, or a file with a [network] table",
        )
    number = written.counts[0] if written.counts else 1
    _check_ranks(number * one.ranks, written.text)
    network, ports, suffix = machine.network, machine.ports, ""
    if any(not link.per_port for _, link in written.links) or len(written.links) > 1:
        raise BadInput(
            f"only the network between machines can be chosen for {written.name}",
            where=written.text,
            fix=f"{number}x{written.name},ib-ndr",
        )
    for given, link in written.links:  # at most one
        ports, network = given or machine.ports, link
        count = f"{ports}x" if ports != machine.ports else ""
        suffix = f",{count}{network.name}" if count or network != machine.network else ""
    if number == 1:
        return one
    text = f"{number}x{one.text}{suffix}"
    levels = (*one.levels, Level("fabric", number, network, ports))
    groups = tuple(DeviceGroup(group.device, group.ranks * number) for group in one.groups)
    ports_source = GIVEN if suffix else one.sources["network.ports"]
    at = len(one.levels)
    sources = {**one.sources, f"levels[{at}].size": GIVEN, f"levels[{at}].ports": ports_source}
    return msgspec.structs.replace(
        one, name=text, title=f"{number} x {one.title}", text=text, levels=levels, groups=groups, sources=sources
    )
