"""What an algorithm takes between the lab's hosts, by its latency-bandwidth formula.

The formulas are those that predictions have (`cost/collectives/`), held to one algorithm. Two things are added that
those leave out, because libraries hide them: a chain has to be filled with its first piece, and between islands
messages that wait for each other cross more often than one message would. What the software of this machine takes is
measured, and comes on top (`Software`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from foretell.cost.collectives import alpha_beta, collective_seconds
from foretell.cost.fabric import Group
from foretell.hardware.cluster import Cluster, Level, Link
from foretell.runtime.collectives import AlgorithmChoice, Round, Team
from foretell.runtime.collectives.ring import pieces_of

WIDTH = 4
"""Bytes of an element: single precision."""


class Software(NamedTuple):
    """Seconds that collectives take beside delays and bytes: programs wake, and hand messages over. As in LogP (Culler
    et al. 1993) being under way and being handed over are two prices; here all hosts share the cores of one machine."""

    start: float = 0.0  # of a collective: ranks wake at the moment at which it begins
    message: float = 0.0  # of a round in which every host sends one; a cluster that is described with it has it already
    beside: float = 0.0  # that a core is busy with one message
    cores: int = 1

    def of(self, choice: AlgorithmChoice, kind: str, ranks: int) -> float:
        """What comes on top of a formula for a cluster that has the time of a message."""
        return self.start + self.beside * further(choice, kind, ranks, self.cores)


NO_SOFTWARE = Software()


@lru_cache(maxsize=1024)
def further(choice: AlgorithmChoice, kind: str, ranks: int, cores: int) -> float:
    """Messages for which a core is busy, one after the other, beyond those of rounds in which every host sends one;
    below zero where most hosts look on. The cores of the machine share those of a round, but for those of one rank."""
    schedules = [list(choice.rounds(kind, Team.of(rank, ranks, 64 * ranks))) for rank in range(ranks)]
    rounds = list(zip_longest(*schedules, fillvalue=Round()))
    return sum(_in_turn(one, cores) for one in rounds) - len(rounds) * max(ranks / cores, 1)


def _in_turn(ranks: tuple[Round, ...], cores: int) -> float:
    """Messages of a round that are handed over one after the other."""
    return max(sum(len(one.sends) for one in ranks) / cores, *(max(len(one.sends), len(one.receives)) for one in ranks))


def formula(choice: AlgorithmChoice, kind: str, size: int, cluster: Cluster, software: Software = NO_SOFTWARE) -> float:
    """Seconds of a tensor of so many bytes, by the latency-bandwidth formula of this one algorithm.

    Hosts that look on save a core's time, and none of the wires': with many hosts on few cores they would save more.
    """
    seconds = _on_wires(choice, kind, size, cluster) + software.of(choice, kind, cluster.ranks)
    least = _on_wires(choice, kind, size, _without_messages(cluster, software.message)) + software.start
    return max(seconds, least)


@lru_cache(maxsize=64)
def _without_messages(cluster: Cluster, message: float) -> Cluster:
    """The wires alone: delays and bytes, without the time of a message that the cluster is described with."""

    def bare(level: Level) -> Level:
        latency = max(0.0, level.link.latency_seconds - message)
        return replace(level, link=replace(level.link, latency_seconds=latency))

    return replace(cluster, levels=tuple(map(bare, cluster.levels)))


def _on_wires(choice: AlgorithmChoice, kind: str, size: int, cluster: Cluster) -> float:
    payload = size / cluster.ranks if kind == "all-gather" else size
    servers = (choice.number or cluster.ranks) if choice.name == "parameter_server" else 1
    library = alpha_beta().only(choice.name)
    price = collective_seconds(kind, payload, Group(cluster.ranks), cluster, servers=servers, library=library)
    islands = _islands(cluster)
    if choice.name == "ring" and kind == "broadcast":
        piece = size / pieces_of(size // WIDTH)
        way = _way(cluster.levels[-1].link)
        first = islands.first(piece) if islands else (cluster.ranks - 1) * piece * way.per_byte
        return price.seconds + first - piece * way.per_byte  # the slowest hop has it among all others
    if islands and choice.name == "ring":
        return islands.ring(kind, size)
    if islands and choice.name == "direct":
        return price.bandwidth + islands.rounds * islands.out.latency
    return price.seconds


class _Way(NamedTuple):
    """A message of b bytes takes latency + b per_byte."""

    latency: float
    per_byte: float

    def seconds(self, size: float) -> float:
        return self.latency + size * self.per_byte


class _Islands(NamedTuple):
    """Hosts of which so many lie together; a ring leaves an island at one of them."""

    hosts: int
    island: int
    inside: _Way
    out: _Way

    @property
    def rounds(self) -> int:
        """In which every host has met every other. In each of them some pair lies on two islands, and hosts that wait
        for each other cross in all of them."""
        return self.hosts - 1

    def first(self, piece: float) -> float:
        """Seconds that the first piece of a chain takes on all its hops, without their latencies."""
        crossings = self.hosts // self.island - 1
        return piece * (crossings * self.out.per_byte + (self.rounds - crossings) * self.inside.per_byte)

    def ring(self, kind: str, size: int) -> float:
        """The longer of two: the blocks of a chain of hosts, one waiting for the other; and the way out, once it is
        busy all the time."""
        block = size / self.hosts
        hops = self.rounds * (2 if kind == "all-reduce" else 1)
        crossings = -(-hops // self.island)  # of the chain that begins with one
        chain = crossings * self.out.seconds(block) + (hops - crossings) * self.inside.seconds(block)
        return max(chain, hops * block * self.out.per_byte + self.out.latency)


def _islands(cluster: Cluster) -> _Islands | None:
    inside, *further = cluster.levels
    if inside.size == 1 or not further or cluster.ranks == inside.size:
        return None
    return _Islands(cluster.ranks, inside.size, _way(inside.link), _way(further[-1].link))


def _way(link: Link) -> _Way:
    return _Way(link.latency_seconds + link.hop_seconds, 1 / (link.bandwidth * link.efficiency["ring"]))
