"""What an algorithm asks of the links: bytes on each, hops one after the other."""

from __future__ import annotations

from typing import Protocol as Interface

import msgspec

from foretell.cost.fabric import Route
from foretell.hardware.cluster import Link

REDUCING = ("all-reduce", "all-gather", "reduce-scatter")
POINT_KINDS = ("shift", "exchange", "send", "receive")
SERVER_KINDS = ("push", "pull")
KINDS = (*REDUCING, "broadcast", "all-to-all", *POINT_KINDS, *SERVER_KINDS)
"""What a program can ask for (`program.action.Communicate.kind`), and broadcast."""


class Load(msgspec.Struct, frozen=True):
    """Bytes that one link carries for each byte of the tensor."""

    volume: float
    link: Link
    rate: float  # nominal B/s
    collective_class: str  # whose efficiency the link gives
    ranks: int  # of the group on this link

    @property
    def seconds(self) -> float:
        """Seconds for each byte of the tensor at what the link really reaches."""
        reached = self.link.reached(self.collective_class, self.ranks) / self.link.bandwidth
        return self.volume / (self.rate * reached)


class Steps(msgspec.Struct, frozen=True):
    """What has to wait for what: hops inside a domain, hops over the network, passages of the bulk."""

    inside: int
    network: int
    passages: int  # times that the whole tensor goes over the network: there, or there and back


class AlgorithmTraffic(msgspec.Struct, frozen=True):
    """An algorithm's demands for one kind of collective on one route, per byte of the tensor."""

    inside: tuple[Load, ...]
    network: tuple[Load, ...]
    steps: Steps
    pipelined: bool = True  # all links busy at once: the slowest sets the time; else one phase after the other


class CollectiveAlgorithm(Interface):
    """A member of the open set: a module with these names."""

    FAMILY: str  # which protocols it runs over
    KINDS: tuple[str, ...]

    def traffic(self, kind: str, route: Route) -> AlgorithmTraffic | None:
        """What it asks of the links; None where it cannot run."""
        ...


def passes(kind: str) -> int:
    """An all-reduce is a reduce-scatter and an all-gather: it goes round twice."""
    return 2 if kind == "all-reduce" else 1


def hop_loads(route: Route, volume: float, collective_class: str = "ring") -> tuple[Load, ...]:
    """The same bytes of every rank on each device link."""
    return tuple(Load(volume, hop.link, hop.rate, collective_class, hop.members) for hop in route.hops)


def border_loads(route: Route, volume: float, collective_class: str = "ring") -> tuple[Load, ...]:
    """The same bytes out of every unit, leaving it at one domain."""
    return tuple(
        Load(volume, crossing.link, crossing.through_one, collective_class, route.ranks) for crossing in route.crossings
    )
