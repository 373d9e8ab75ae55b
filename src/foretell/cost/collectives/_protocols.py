"""How the bytes of an algorithm move: what a protocol pays at the start, per hop, and in rate.

Read from 908 timed rows of published sweeps, V100 to B200 (`studies/collectives`). Times of hops are in units
of the link's own `latency_seconds`, which is that of LL: 0.7 us on NVLink, 1.7 times that on PCIe, 4 us over a
network. NCCL's own table (src/graph/tuning.cc of NCCL 2.30: base 6.6 / 14 / 8.4 us; NVLink ring 0.6 / 1.9 / 3.4 us;
network ring 2.7 / 4 / 14 us) decides which protocol to take; it is far too low for cloud fabrics and for
Simple over a network.
"""

from __future__ import annotations

import msgspec

from foretell.cost.collectives._traffic import Load, Steps
from foretell.cost.fabric import Route

NVLINK_HOP = 0.7e-6
NETWORK_HOP = 4e-6
"""Hops of LL that the ratios below are taken of (hardware/links)."""

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
        orderly = {*_ORDERLY, "efa"} if route.architecture in _ORDERLY_EFA else _ORDERLY
        return route.networks <= orderly and all(hop.link.kind == "nvlink" for hop in route.hops)

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


_ORDERLY = frozenset({"infiniband", "roce"})
_ORDERLY_EFA = frozenset({"hopper", "blackwell", "blackwell-ultra"})
"""Networks over which LL128 runs; EFA from the H100 instances on. Not TCPXO: its sweep follows LL to 16 MiB, then
Simple."""

NCCL_PROTOCOLS = (
    Protocol(
        name="LL", families=("ring",), base=6.6e-6, hop=1.0, network_hop=1.0, fabric_hop=1.0,
        inside_rate=0.5, network_rate=0.14,
    ),
    Protocol(
        name="LL", families=("tree",), base=6.6e-6, hop=1.0, network_hop=1.0, fabric_hop=1.0,
        inside_rate=0.26, network_rate=0.14,
    ),
    Protocol(
        name="LL128", families=("ring", "tree"), base=12e-6, hop=1.5e-6 / NVLINK_HOP,
        network_hop=7e-6 / NETWORK_HOP, fabric_hop=1.0, inside_rate=0.92, network_rate=0.92, picky=True,
    ),
    # Simple pays the network once for each passage and not at each hop: 96 H100 lose about 230 us in all at
    # 512 MiB, where a charge at each hop gives more than 1,000.
    Protocol(
        name="Simple", families=("ring",), base=8.4e-6, hop=2.3e-6 / NVLINK_HOP, network_hop=2.3e-6 / NETWORK_HOP,
        fabric_hop=0.0, passage=40e-6 / NETWORK_HOP, fabric_passage=3.5,
    ),
    Protocol(
        name="Simple", families=("tree",), base=8.4e-6, hop=2.3e-6 / NVLINK_HOP, network_hop=2.3e-6 / NETWORK_HOP,
        fabric_hop=0.0, passage=40e-6 / NETWORK_HOP, fabric_passage=3.5, inside_rate=0.85,
    ),
    Protocol(
        name="Simple", families=("nvls",), base=18e-6, hop=0.0, network_hop=45e-6 / NETWORK_HOP, fabric_hop=0.0,
        fabric_passage=3.5,
    ),
    # Sends between two ranks: a slow line at once, the full rate 6 us later. A peer in the domain takes 0.25 us,
    # one beyond it 2.4 us (the same over RoCE at 256 ranks, meta-pytorch/autoparallel), and the fabric once.
    Protocol(
        name="LL", families=("point",), base=8.95e-6, hop=0.25e-6 / NVLINK_HOP, network_hop=2.4e-6 / NETWORK_HOP,
        fabric_hop=0.0, fabric_passage=1.0, inside_rate=0.35, network_rate=0.35,
    ),
    Protocol(
        name="Simple", families=("point",), base=14.95e-6, hop=0.25e-6 / NVLINK_HOP,
        network_hop=2.4e-6 / NETWORK_HOP, fabric_hop=0.0, fabric_passage=1.0,
    ),
)  # fmt: skip

EVERY_FAMILY = ("ring", "tree", "nvls", "point")

SOCKETS = Protocol(
    name="sockets", families=(*EVERY_FAMILY, "gloo"), base=0.0, hop=1.0, network_hop=1.0, fabric_hop=1.0, fill=0.0
)  # fmt: skip
"""Gloo over TCP: a latency a hop and a rate, measured on loopback from 1 KiB to 64 MiB (links/loopback.toml)."""

ALPHA_BETA = Protocol(
    name="alpha-beta", families=EVERY_FAMILY, base=0.0, hop=1.0, network_hop=1.0, fabric_hop=1.0, fill=0.0
)  # fmt: skip
"""Hockney's model, as the papers use it."""
