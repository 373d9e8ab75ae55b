"""The hardware as values: devices, links, and the levels that put devices together.

Everything is in SI units and frozen. A rank is one process with its device. A cluster is a list
of levels, innermost first; ranks are numbered so that neighbours share the innermost unit:

    node    8 devices   over nvlink4-switch
    fabric  4 nodes     over ib-ndr, 8 ports a node         32 ranks: 0..7 are node 0

The node is where the host processes live. It is not always as far as the fast links reach: in an
NVL72 rack a node has 4 devices and NVLink reaches 72. So a level has a link, and nobody may ask
"is it inside the node" to learn "is it NVLink".
"""

from __future__ import annotations

import math
from itertools import takewhile

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware.architecture import Reached
from foretell.hardware.measured import Surface, UnderPower
from foretell.hardware.quantity import show
from foretell.hardware.topology import FabricTopology, fabric_topology

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "int8")
"""Precisions that a device can have a rate for."""

DEVICE_KINDS = ("nvlink", "xgmi", "pcie", "hostbus", "loopback")
"""Kinds of links whose bandwidth is per device: each device of the level has that much, one way."""

NETWORK_KINDS = ("infiniband", "omnipath", "roce", "efa", "ethernet", "tcpx", "tcpxo")
"""Kinds of links whose bandwidth is per port: a node has as many ports as its level says."""

COLLECTIVE_CLASSES = ("ring", "nvls", "all_to_all", "point")
"""What a link can have an efficiency for: ring and tree collectives, reductions in the NVLink
switch, all-to-all, and send-receive between two ranks."""


class NodeShape(msgspec.Struct, frozen=True):
    """The machine a device usually sits in: what `64xh100` means."""

    size: int  # devices in a node
    link: str  # the link inside
    network: str  # the link between nodes
    ports: int  # network ports of a node
    domain: int  # devices that `link` reaches; more than `size` where it spans nodes


PROCESSORS = ("cpu", "cpu-core")


class Device(msgspec.Struct, frozen=True):
    """One accelerator as software sees it (one of two dies where a card shows up as two devices)."""

    name: str
    title: str
    architecture: str
    memory_bytes: int  # what the driver offers a program, less than the label says
    memory_bandwidth: float  # B/s
    cache_bytes: int  # the last cache that all multiprocessors share
    multiprocessors: int
    clock_hz: float  # boost
    peak: dict[str, float]  # precision to dense flop/s of the matrix units; empty where there are none
    vector: dict[str, float]  # precision to flop/s of the ordinary units
    launch_seconds: float  # least time between the starts of two kernels on the device
    host_link: str
    power_watts: float
    node: NodeShape
    sources: dict[str, str]  # figure to where it comes from
    reached: dict[str, Reached] = {}  # what its units reach, where that was measured; else as its architecture
    shares: dict[str, float] = {}  # the same by precision, where frameworks reach less than the best product does
    measured: dict[str, Surface] = {}  # corrections of kernel prices, by kind of kernel: a calibration's
    under_power: UnderPower | None = None  # what its limit of power adds to that: a calibration's; None: not timed
    profiled: dict[str, float] = {}  # factors on kernel prices, by layer and pass of one model: a profile's
    pace: float = 1.0  # times as long as that, which all kernels take: what measured steps of a stack say

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.memory_bandwidth))

    @property
    def told(self) -> str:
        """Its name, and how much longer than others of it a throttled one takes."""
        return self.name if self.pace == 1 else f"{self.name}@{self.pace:g}x"

    @property
    def is_processor(self) -> bool:
        """Whether it is a processor or a core of one: ranks on it talk by gloo."""
        return self.name in PROCESSORS

    def matrix_rate(self, precision: str) -> float:
        """The best dense flop/s for matrix products in this precision.

        TF32 is a way to multiply fp32 numbers: a device without it multiplies them in fp32.
        """
        rates = [table[precision] for table in (self.peak, self.vector) if precision in table]
        if rates:
            return max(rates)
        if precision == "tf32":
            return self.matrix_rate("fp32")
        known = sorted({*self.peak, *self.vector}, key=PRECISIONS.index)
        raise BadInput(f"{self.name} has no {precision} units", fix=f"one of {', '.join(known)}")

    def supports(self, precision: str) -> bool:
        """Whether matrix products in this precision have hardware."""
        return precision in self.peak or precision in self.vector


class Link(msgspec.Struct, frozen=True):
    """What carries bytes between ranks, one direction.

    `bandwidth` is nominal: per device for the links of DEVICE_KINDS, per port for those of
    NETWORK_KINDS. What a collective gets of it is `efficiency`, by class; a class with a rank
    count, `ring@4`, holds for groups of at most that many ranks.
    """

    name: str
    title: str
    kind: str
    bandwidth: float  # B/s
    latency_seconds: float  # one hop of a small message
    hop_seconds: float  # what the fabric adds to each network hop (F); 0 inside a node
    switched: bool  # every pair at full rate, rather than by the wires that happen to join it
    multicast: bool  # the switch reduces and multicasts (NVLS)
    ceiling: float  # B/s that software reaches at most, whatever the line rate; `bandwidth` where it scales
    efficiency: dict[str, float]
    sources: dict[str, str]
    measured: dict[str, Surface] = {}  # corrections of collectives that stay on it, by kind: a calibration's

    def __hash__(self) -> int:
        return hash((self.name, self.bandwidth, self.latency_seconds))

    @property
    def per_port(self) -> bool:
        """Whether the bandwidth is that of a network port rather than of a device."""
        return self.kind in NETWORK_KINDS

    def efficiency_of(self, collective_class: str, ranks: int) -> float:
        """The fraction of the nominal rate that a class of collectives reaches among so many ranks.

        A class that nobody measured on this link gets the ring's.
        """
        if collective_class not in COLLECTIVE_CLASSES:
            raise unknown("class of collectives", collective_class, COLLECTIVE_CLASSES)
        sized = {int(key.partition("@")[2]): key for key in self.efficiency if key.startswith(f"{collective_class}@")}
        fitting = [limit for limit in sized if ranks <= limit]
        if fitting:
            return self.efficiency[sized[min(fitting)]]
        if collective_class in self.efficiency:
            return self.efficiency[collective_class]
        return self.efficiency_of("ring", ranks)

    def reached(self, collective_class: str, ranks: int) -> float:
        """B/s per device or port that a class of collectives really gets."""
        return min(self.bandwidth * self.efficiency_of(collective_class, ranks), self.ceiling)


class Level(msgspec.Struct, frozen=True):
    """Units of the level below, joined by one link."""

    name: str  # node, rack, pod, fabric ...
    size: int  # units of the level below in one unit of this one
    link: Link
    ports: int = 1  # network ports of one node at this level; 1 for links inside
    oversubscription: float = 1.0  # 3: a third of what the units below could send gets through


class DeviceGroup(msgspec.Struct, frozen=True):
    """Ranks with the same device."""

    device: Device
    ranks: int


class StackSays(msgspec.Struct, frozen=True):
    """What measured steps of a stack leave open of a run: variances of logarithms of its times over priced ones."""

    name: str
    runs: int
    factors: tuple[float, float, float]  # that it is priced with: what computes, messages, the host
    between: tuple[tuple[float, float, float], ...]  # covariances of their logarithms
    own: float  # variance of the one run
    surprise: float  # how far the measured steps were from what the others said of them, as a logarithm
    elsewhere: bool  # none was measured on this device


class Cluster(msgspec.Struct, frozen=True):
    """Devices and the levels that hold them, innermost first."""

    name: str
    title: str
    groups: tuple[DeviceGroup, ...]  # one, unless the cluster is mixed
    levels: tuple[Level, ...]
    text: str  # `catalog.cluster(text)` gives this cluster back
    sources: dict[str, str]
    library: str = ""  # what carries out collectives; empty: what its devices usually have
    topology: str = "tree"  # how units are joined, from `topologies/`
    pace: float = 1.0  # times as long as priced that all messages take: what measured steps of a stack say
    stack: StackSays | None = None  # what else those say of a run here; None: none were measured

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def ranks(self) -> int:
        return math.prod(level.size for level in self.levels)

    @property
    def device(self) -> Device:
        """The one device of this cluster."""
        first = self.groups[0]
        if self.mixed:
            held = ", ".join(f"{group.ranks} x {group.device.told}" for group in self.groups)
            raise BadInput(
                f"{self.name} mixes devices ({held}): steps are predicted on it and plans searched, and nothing else",
                where=self.text,
                fix=f"one part of it at a time: {first.ranks}x{first.device.name}",
            )
        return first.device

    @property
    def mixed(self) -> bool:
        return len(self.groups) > 1

    def unit(self, level: Level) -> int:
        """Ranks in one unit of a level."""
        return math.prod(inner.size for inner in self.levels[: self.levels.index(level) + 1])

    @property
    def ranks_per_node(self) -> int:
        return self.unit(self.node)

    @property
    def node(self) -> Level:
        """The level called node."""
        return next(level for level in self.levels if level.name == "node")

    @property
    def nodes(self) -> int:
        return self.ranks // self.ranks_per_node

    @property
    def domain(self) -> int:
        """Ranks that reach each other without a network: a node, or a rack of NVLink."""
        inside = takewhile(lambda level: not level.link.per_port, self.levels)
        return math.prod(level.size for level in inside)

    @property
    def fabric(self) -> FabricTopology:
        """How its units are joined."""
        return fabric_topology(self.topology)

    def level_of(self, size: int, stride: int = 1) -> Level:
        """The innermost level whose units hold every group of `size` ranks that are `stride` apart.

        Groups are those of a mesh axis: blocks of size x stride ranks, one after the other. A unit
        that such blocks do not fill evenly cuts some group in two, and the slowest group sets the
        time: three ranks apart on nodes of eight cross the network.
        """
        crossed = [level for level, count in zip(self.levels, self.spread(size, stride), strict=True) if count > 1]
        return crossed[-1] if crossed else self.levels[0]

    def spread(self, size: int, stride: int = 1) -> tuple[int, ...]:
        """Per level, how many units of the level below hold members of one group (the widest one).

        Eight ranks, eight apart, on nodes of eight: (1, 8), one rank a node in eight nodes.
        """
        if size < 1 or stride < 1 or size * stride > self.ranks:
            raise BadInput(
                f"{size} ranks, {stride} apart, take {size * stride} ranks; {self.name} has {self.ranks}",
                where=self.text,
                fix="a smaller group, or a larger cluster",
            )
        return self.fabric.spread(self, size, stride)

    def node_bandwidth(self, level: Level) -> float:
        """Nominal B/s, one way, that one node can send at a level."""
        if level.link.per_port:
            return level.link.bandwidth * level.ports / level.oversubscription
        return level.link.bandwidth * self.ranks_per_node / level.oversubscription

    def rank_bandwidth(self, level: Level) -> float:
        """Nominal B/s, one way, that one rank has at a level when all ranks of its node send."""
        return self.node_bandwidth(level) / self.ranks_per_node

    def describe(self) -> str:
        """The cluster in words, a line a level."""
        held = " + ".join(f"{group.ranks} x {group.device.title}" for group in self.groups)
        lines = [f"{self.text}: {held}"]
        below = "device"
        for level in self.levels:
            ports = f", {_counted(level.ports, 'port')} a node" if level.link.per_port else ""
            narrow = f", 1:{level.oversubscription:g} over-subscribed" if level.oversubscription > 1 else ""
            rate = show(level.link.bandwidth, "bandwidth")
            held = _counted(level.size, below)
            lines.append(f"  {level.name:<8}{held} over {level.link.name} ({rate}{ports}{narrow})")
            below = level.name
        return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
