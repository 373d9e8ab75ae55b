"""Which algorithms and protocols a communication library has, kind by kind."""

from __future__ import annotations

from functools import cache
from typing import cast

import msgspec

from foretell.cost.collectives import gloo
from foretell.cost.collectives._protocols import ALPHA_BETA, NCCL_PROTOCOLS, SOCKETS, Protocol
from foretell.cost.collectives._traffic import KINDS, POINT_KINDS, REDUCING, SERVER_KINDS, Algorithm
from foretell.cost.fabric import Route
from foretell.hardware.cluster import Cluster
from foretell.registry import OpenSet

ALGORITHMS = OpenSet("foretell.cost.collectives", "algorithm for collectives")


class Library(msgspec.Struct, frozen=True):
    """What carries out collectives."""

    name: str
    algorithms: dict[str, tuple[str, ...]]  # kind to names of the open set
    protocols: tuple[Protocol, ...]
    kept_from: dict[str, tuple[str, ...]]  # kind of network to algorithms that are switched off there

    def __hash__(self) -> int:
        return hash((self.name, *self.algorithms.items()))

    def only(self, *algorithms: str) -> Library:
        """The same library held to some algorithms."""
        kept = {kind: tuple(name for name in names if name in algorithms) for kind, names in self.algorithms.items()}
        return msgspec.structs.replace(self, name=f"{self.name} ({', '.join(algorithms)})", algorithms=kept)

    def offers(self, kind: str, route: Route) -> tuple[str, ...]:
        """The algorithms for one kind of collective over some links."""
        off = {name for network in route.networks for name in self.kept_from.get(network, ())}
        return tuple(name for name in self.algorithms.get(kind, ()) if name not in off)


_MESSAGES = {
    **dict.fromkeys(POINT_KINDS, ("point_to_point",)),
    **dict.fromkeys(SERVER_KINDS, ("parameter_server",)),
}
_EXCHANGES = {"all-to-all": ("direct",), **_MESSAGES}
_RINGS = {**dict.fromkeys(REDUCING, ("ring",)), "broadcast": ("ring",)}

NCCL = Library(
    "nccl",
    {**_RINGS, "all-reduce": ("ring", "tree", "nvls"), **_EXCHANGES},
    NCCL_PROTOCOLS,
    # What the installers of these plugins set: rings only for TCPX (NCCL_ALGO=Ring), rings and trees for TCPXO
    # (NCCL_ALGO=Ring,Tree and NCCL_NVLS_ENABLE=0; NVIDIA/aicr pull 422).
    {"tcpx": ("tree", "nvls"), "tcpxo": ("nvls",)},
)
GLOO = Library("gloo", {**_MESSAGES, **dict.fromkeys(gloo.KINDS, ("gloo",))}, (SOCKETS,), {})


@cache
def alpha_beta() -> Library:
    """Every algorithm of the set with a latency a hop and a rate: the papers' formulas come out of it."""
    every = {name: cast(Algorithm, ALGORITHMS[name]) for name in ALGORITHMS}
    kinds = {name: one.KINDS for name, one in every.items() if one.FAMILY in ALPHA_BETA.families}
    found = {kind: tuple(name for name in kinds if kind in kinds[name]) for kind in KINDS}
    return Library("alpha-beta", found, (ALPHA_BETA,), {})


def library_of(cluster: Cluster) -> Library:
    """NCCL (or its like) between accelerators, gloo between processes on host processors."""
    return GLOO if cluster.groups[0].device.is_processor else NCCL
