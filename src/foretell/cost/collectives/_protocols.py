"""How the bytes of an algorithm move: what a protocol pays at the start, per hop, and in rate.

Times of hops are in units of the link's own `latency_seconds`.
"""

from __future__ import annotations

import msgspec

from foretell.cost.collectives._traffic import Load, Steps
from foretell.cost.fabric import Route
from foretell.hardware.members import architecture

FILL = 16e-6
"""Filling the pipeline takes sqrt(FILL x T): the best number of chunks grows with the message, and with k chunks
a tree takes 2(log p + k)(alpha + m/(2k) beta) (Kahira et al. 2021), whose least over k has this square root.
Read from one H100 node with NVLS (16 to 30 us) and from all-to-all on B200 (15 to 23 us)."""


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """One way to move bytes, for the algorithms of some families."""

    name: str
    families: tuple[str, ...]
    base: float  # seconds, before anything moves
    hop: float  # times the link's latency, per hop inside a domain
    network_hop: float  # times the network's latency, per network hop
    fabric_hop: float  # times what the fabric adds, per network hop
    passage: float = 0.0  # times the network's latency, once for each passage of the bulk
    fabric_passage: float = 0.0  # times what the fabric adds, likewise
    inside_rate: float = 1.0  # of the link's, on device links
    network_rate: float = 1.0
    fill: float = FILL
    picky: bool = False  # needs links that keep the order of 128-byte stores

    def runs_on(self, route: Route) -> bool:
        """Whether the links allow it."""
        if not self.picky:
            return True
        ordered = frozenset(architecture(route.architecture).ordered_networks)
        return route.networks <= ordered and all(hop.link.kind == "nvlink" for hop in route.hops)

    def latency(self, steps: Steps, route: Route) -> float:
        """Seconds before and between the bytes."""
        return (
            self.base
            + steps.inside * self.hop * route.hop_seconds
            + steps.network * (self.network_hop * route.network_seconds + self.fabric_hop * route.fabric_seconds)
            + steps.passages * (self.passage * route.network_seconds + self.fabric_passage * route.fabric_seconds)
        )

    def seconds_inside(self, load: Load) -> float:
        return load.seconds / self.inside_rate

    def seconds_network(self, load: Load) -> float:
        return load.seconds / self.network_rate


EVERY_FAMILY = ("ring", "tree", "nvls", "point")

ALPHA_BETA = Protocol(
    name="alpha-beta", families=EVERY_FAMILY, base=0.0, hop=1.0, network_hop=1.0, fabric_hop=1.0, fill=0.0
)  # fmt: skip
"""Hockney's model, as the papers use it."""
