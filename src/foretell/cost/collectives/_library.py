"""What carries out collectives: which algorithms and protocols a library has, and how its messages behave in a step."""

from __future__ import annotations

from functools import cache
from typing import cast

import msgspec

from foretell.cost.collectives._protocols import ALPHA_BETA, Protocol
from foretell.cost.collectives._traffic import KINDS, POINT_KINDS, SERVER_KINDS, CollectiveAlgorithm
from foretell.cost.fabric import Route
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.hardware.members import architecture
from foretell.registry import OpenSet

ALGORITHMS = OpenSet("foretell.cost.collectives", "algorithm for collectives")
LIBRARIES = OpenSet("foretell.cost.collectives.libraries", "communication library")

MESSAGES = {
    **dict.fromkeys(POINT_KINDS, ("point_to_point",)),
    **dict.fromkeys(SERVER_KINDS, ("parameter_server",)),
}
"""How ranks send to each other and to servers in every library that there is."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """What carries out collectives, as a benchmark of it alone shows, and as a training step meets it."""

    name: str
    summary: str
    algorithms: dict[str, tuple[str, ...]]  # kind to names of the open set
    protocols: tuple[Protocol, ...]
    kept_from: dict[str, tuple[str, ...]] = {}  # kind of network to algorithms that are switched off there
    rendezvous: bool = False  # a send waits until its receiver asks for it, which a busy stage does late
    contends: bool = True  # its kernels compete with those of a step, which leaves them less than a benchmark gets
    free: bool = False  # its messages take no time
    on_cores: bool = False  # messages between machines take time of the core that computes

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


@cache
def library(name: str) -> Library:
    """The library of this name."""
    return LIBRARIES[name].LIBRARY


@cache
def alpha_beta() -> Library:
    """Every algorithm of the set with a latency a hop and a rate: the papers' formulas come out of it."""
    every = {name: cast(CollectiveAlgorithm, ALGORITHMS[name]) for name in ALGORITHMS}
    kinds = {name: one.KINDS for name, one in every.items() if one.FAMILY in ALPHA_BETA.families}
    found = {kind: tuple(name for name in kinds if kind in kinds[name]) for kind in KINDS}
    return Library(
        name="alpha-beta", summary="the formulas of the papers", algorithms=found, protocols=(ALPHA_BETA,)
    )  # fmt: skip


def library_of(cluster: Cluster) -> Library:
    """The library that a cluster names, else what devices of such an architecture usually have."""
    try:
        return library(cluster.library or architecture(cluster.groups[0].device.architecture).library)
    except BadInput as problem:
        raise problem.within(f"{cluster.text}, library") from None
