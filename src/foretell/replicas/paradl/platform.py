"""The machine of the paper, ABCI, as its released tool has it.

Four V100 a node on NVLink, two PLX switches and InfiniBand out of the node; 17 nodes (68 ranks) on
one leaf switch, 34 (136 ranks) in a rack. A collective pays the start-up time and the bandwidth of
the widest level that its ranks span.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.units import Quantity


class HockneyLink(msgspec.Struct, frozen=True):
    """Hockney's model: a message of m bytes takes startup + m / bandwidth. Collectives are rings (section 4.2)."""

    startup: Quantity  # seconds
    bandwidth: Quantity  # bytes a second

    def shared(self, flows: Quantity) -> HockneyLink:
        """The same link with its bandwidth divided among flows of the same job."""
        return HockneyLink(self.startup, self.bandwidth / flows)

    def send(self, size: Quantity) -> Quantity:
        """Seconds of one message of `size` bytes."""
        return self.startup + size / self.bandwidth

    def all_gather(self, ranks: Quantity, size: Quantity) -> Quantity:
        """A ring after which every rank has all `size` bytes, a share of which each rank had."""
        return (ranks - 1) * self.send(size / ranks)

    def all_reduce(self, ranks: Quantity, size: Quantity) -> Quantity:
        """A ring that sums `size` bytes: reduced in shares, then gathered."""
        return 2 * self.all_gather(ranks, size)

    def exchange_halo(self, size: Quantity) -> Quantity:
        """`size` bytes to the neighbour on each side, one after the other."""
        return 2 * self.send(size)


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """Constants in seconds, bytes and bytes a second (sources as the tool names them)."""

    name: str = "abci"
    memory: float = 16e9  # of one V100
    speed: float = 7.8e12  # flops a second, for layer files without seconds
    item: int = 4  # bytes an element (delta)
    node: int = 4  # ranks on NVLink
    leaf: int = 68  # ranks under one leaf switch
    rack: int = 136  # ranks of one rack
    nvlink_bandwidth: float = 50e9
    nvlink_startup: float = 9e-6  # one hop, arXiv 1903.04611
    plx_bandwidth: float = 16e9  # PCIe 3.0 x16 through the PLX switch
    plx_delay: float = 110e-9
    cable_startup: float  # GPU to PLX; the authors changed it, see releases
    host_startup: float = 3e-3  # GPU to GPU in a node by MPI without GPUDirect, as they measured
    fabric_bandwidth: float = 12.5e9  # InfiniBand EDR
    leaf_delay: float = 90e-9
    full_bisection_delay: float = 90e-9
    spine_delay: float = 400e-9

    def link(self, ranks: Quantity) -> HockneyLink:
        """What a ring of this many ranks pays, with GPUDirect."""
        out = 2 * (self.cable_startup + self.plx_delay) + self.leaf_delay
        across_rack = out + self.full_bisection_delay + self.leaf_delay
        across_racks = across_rack + self.spine_delay + self.full_bisection_delay
        startup = self._by_level(ranks, (self.nvlink_startup, out, across_rack), across_racks)
        return HockneyLink(startup, self._by_level(ranks, (self.nvlink_bandwidth,), self.fabric_bandwidth))

    def link_by_host(self, ranks: Quantity) -> HockneyLink:
        """The same for MPI without GPUDirect, which halos and Allgatherv use; one rack up they are alike."""
        direct = self.link(ranks)
        inside = self.host_startup + self.plx_delay
        out = 4 * (self.cable_startup + self.plx_delay) + self.leaf_delay
        startup = self._by_level(ranks, (inside, out), direct.startup)
        return HockneyLink(startup, self._by_level(ranks, (self.plx_bandwidth,), direct.bandwidth))

    @property
    def told(self) -> str:
        """Its links, in words."""
        return (
            f"abci: NVLink {self.nvlink_bandwidth / 1e9:g} GB/s and {self.nvlink_startup * 1e6:g} us in a node,"
            f" InfiniBand {self.fabric_bandwidth / 1e9:g} GB/s and cables of {self.cable_startup * 1e6:g} us"
            " between nodes"
        )

    def _by_level(self, ranks: Quantity, inner: tuple[float, ...], outer: Quantity) -> Quantity:
        """The first of `inner` whose level (node, leaf, rack) holds the ranks, else `outer`."""
        levels = (self.node, self.leaf, self.rack)[: len(inner)]
        if isinstance(ranks, int | float):
            held = (value for level, value in zip(levels, inner, strict=True) if ranks <= level)
            return next(held, outer)
        import numpy

        return numpy.select([ranks <= level for level in levels], list(inner), outer)


class RankLevel(NamedTuple):
    """What a ring pays whose ranks lie within a level of a cluster."""

    name: str
    ranks: int
    startup: float
    bandwidth: float


class ClusterPlatform(Platform, frozen=True, kw_only=True):
    """Any cluster in the paper's terms: a start-up time and a bandwidth for each of its levels."""

    cable_startup: float = 0.0
    levels: tuple[RankLevel, ...]

    @property
    def told(self) -> str:
        links = (f"{one.name} {one.bandwidth / 1e9:.3g} GB/s and {one.startup * 1e6:.3g} us" for one in self.levels)
        return f"{self.name}: {', '.join(links)}"

    def link(self, ranks: Quantity) -> HockneyLink:
        last = self.levels[-1]
        if isinstance(ranks, int | float):
            held = next((one for one in self.levels if ranks <= one.ranks), last)
            return HockneyLink(held.startup, held.bandwidth)
        import numpy

        inside = [ranks <= one.ranks for one in self.levels]
        startup = numpy.select(inside, [one.startup for one in self.levels], last.startup)
        return HockneyLink(startup, numpy.select(inside, [one.bandwidth for one in self.levels], last.bandwidth))

    def link_by_host(self, ranks: Quantity) -> HockneyLink:
        return self.link(ranks)


def of_cluster(cluster: Cluster) -> ClusterPlatform:
    """Latencies as they are told, bandwidths as rings reach them; between nodes all ports of a node carry a ring."""
    levels: list[RankLevel] = []
    inside = 1
    for level in cluster.levels:
        inside *= level.size
        link = level.link
        rate = link.reached("ring", inside) * (level.ports if link.per_port else 1) / level.oversubscription
        levels.append(RankLevel(link.name, inside, link.latency_seconds, rate))
    device = cluster.device
    return ClusterPlatform(
        name=cluster.text,
        memory=device.memory_bytes,
        speed=device.matrix_rate("fp32"),
        node=cluster.ranks_per_node,
        levels=tuple(levels),
    )
