"""The nodes of one kind of device, as usual or as written: how many devices, which links, how many ports."""

from __future__ import annotations

import msgspec

from foretell.errors import BadInput
from foretell.hardware import members
from foretell.hardware.cluster import Device, Level, Link
from foretell.hardware.packing import UNBOUNDED, neighbours, packed

GIVEN = "given in the cluster's text"


class DeviceNodes(msgspec.Struct, frozen=True):
    """The nodes of a device, as usual or as written."""

    device: Device
    size: int
    link: Link
    network: Link
    ports: int
    network_given: bool

    @classmethod
    def of(cls, device: Device, size: int, links: tuple[tuple[int, Link], ...], text: str) -> DeviceNodes:
        size = size or device.node.size
        inside = [link for _, link in links if not link.per_port]
        networks = [(ports, link) for ports, link in links if link.per_port]
        if len(inside) > 1 or len(networks) > 1:
            raise BadInput(
                "two links for the same level", where=text, fix="one inside the node, one network between nodes"
            )
        ports, network = networks[0] if networks else (0, members.link(device.node.network))
        link = inside[0] if inside else members.link(device.node.link)
        ports = ports or usual_ports(device, size, network)
        return cls(device, size, link, network, ports, bool(networks))

    def template(self) -> tuple[Level, ...]:
        """The levels with room for any number of nodes."""
        fabric = Level("fabric", UNBOUNDED, self.network, self.ports)
        node = Level("node", self.size, self.link)
        spans = self.device.node.domain > self.device.node.size and self.link.name == self.device.node.link
        reach = self.device.node.domain // self.size if spans else 1
        return (node, Level("rack", reach, self.link), fabric) if reach > 1 else (node, fabric)

    def levels(self, ranks: int) -> tuple[Level, ...] | None:
        return packed(self.template(), ranks)

    def misfit(self, ranks: int, text: str) -> BadInput:
        """The error for ranks that do not fill nodes, or nodes that do not fill racks."""
        fitting = [self.text(n, self.levels(n) or ()) for n in neighbours(self.template(), ranks)]
        if ranks % self.size == 0:
            reach, nodes = self.template()[1].size, ranks // self.size
            return BadInput(
                f"{nodes} nodes of {self.size} do not spread evenly over racks of {reach}",
                where=text,
                fix=" or ".join(fitting),
            )
        smaller = next(n for n in range(min(self.size, ranks), 0, -1) if ranks % n == 0)
        ports = usual_ports(self.device, smaller, self.network) if self._usual_count() else self.ports
        own_nodes = msgspec.structs.replace(self, size=smaller, ports=ports)
        levels = own_nodes.levels(ranks)
        own = [own_nodes.text(ranks, levels)] if smaller > 1 and levels else []
        return BadInput(f"{ranks} ranks are not whole nodes of {self.size}", where=text, fix=" or ".join(fitting + own))

    def text(self, ranks: int, levels: tuple[Level, ...]) -> str:
        """The shortest text that gives these levels back."""
        usual = self.size == self.device.node.size or (ranks == self.size < self.device.node.size)
        count = "" if ranks == 1 else f"{ranks}x"
        parts = [f"{count}{self.device.told}" if usual else f"{ranks // self.size}x{self.size}x{self.device.told}"]
        if self.link.name != self.device.node.link:
            parts.append(self.link.name)
        if any(level.link.per_port for level in levels) and not self._usual_network():
            count = "" if self._usual_count() else f"{self.ports}x"
            parts.append(f"{count}{self.network.name}")
        return ",".join(parts)

    def _usual_network(self) -> bool:
        return self.network.name == self.device.node.network and self._usual_count()

    def _usual_count(self) -> bool:
        return self.ports == usual_ports(self.device, self.size, self.network)

    def sources(self, levels: tuple[Level, ...]) -> dict[str, str]:
        from_device = self.device.sources
        size = from_device["node.size"] if levels[0].size == self.device.node.size else GIVEN
        found = {"levels[0].size": size}
        for at, level in enumerate(levels[1:], 1):
            found[f"levels[{at}].size"] = GIVEN
            if level.link.per_port:
                found[f"levels[{at}].ports"] = from_device["node.ports"] if self._usual_network() else GIVEN
            elif "node.domain" in from_device:
                found[f"levels[{at}].size"] = from_device["node.domain"]
        return found


def usual_ports(device: Device, size: int, network: Link) -> int:
    """Ports of a node of `size` devices: each device keeps its share of them.

    Plain Ethernet is the host's own interface, of which there is one.
    """
    if network.kind == "ethernet" and network.name != device.node.network:
        return 1
    return max(1, round(device.node.ports * size / device.node.size))
