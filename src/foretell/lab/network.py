"""The network between emulated hosts: a port each, islands with a way out, links of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware.disturbance import BackgroundTraffic, SlowLink, nothing_left

MOST_HOSTS = 64
MTU = 32_000
"""Bytes of a packet. Few large ones cost little of the cores that ranks compute on, and a message takes as long however
it is cut (`switch.c`)."""

MOST_ON_WAY = 1 << 30
"""Bytes that a connection of TCP may have on its way (RFC 7323, 2.3)."""

HEADERS = 52
"""Bytes of a packet that are IP's and TCP's: 20, 20, and 12 for time stamps."""

PAYLOAD = (MTU - HEADERS) / MTU
"""The part of a link's rate that carries messages."""


class Wire(msgspec.Struct, frozen=True):
    """A rate and a delay."""

    rate: float  # B/s, each way
    delay: float  # s, one way


class LabNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts with a port each into one switch. What leaves an island goes by a way out that all its hosts share."""

    hosts: int
    rate: float  # B/s of a port, each way
    delay: float  # s, one way between two hosts (of an island)
    island: int = 0  # hosts of an island; 0: one for all
    uplink: Wire | None = None  # out of each island; its delay comes on top
    ports: dict[int, float] = {}  # hosts whose port has another rate
    links: dict[tuple[int, int], Wire] = {}  # pairs that have a link of their own, in place of the above delay

    def __post_init__(self) -> None:
        if not 2 <= self.hosts <= MOST_HOSTS:
            raise BadInput(f"{self.hosts} hosts", where="--hosts", fix=f"2 to {MOST_HOSTS}")
        if self.island < 0 or (self.island and (self.hosts % self.island or self.uplink is None)):
            raise BadInput(
                f"islands of {self.island} among {self.hosts} hosts", where="--island", fix="--hosts 4 --island 2"
            )
        outside = [host for host in (*self.ports, *(end for pair in self.links for end in pair)) if host >= self.hosts]
        if outside:
            raise BadInput(f"there is no host {outside[0]} among {self.hosts}", fix=f"0 to {self.hosts - 1}")

    @property
    def islands(self) -> int:
        return self.hosts // self.island if self.island else 1

    def island_of(self, host: int) -> int:
        return host // self.island if self.island else 0

    def port(self, host: int) -> float:
        return self.ports.get(host, self.rate)

    def between(self, a: int, b: int) -> Wire:
        """What a message from one host to another meets, when nobody else sends."""
        own = self.links.get((min(a, b), max(a, b)))
        delay = own.delay if own else self.delay
        rates = [self.port(a), self.port(b), *([own.rate] if own else [])]
        if self.uplink and self.island_of(a) != self.island_of(b):
            delay += self.uplink.delay
            rates.append(self.uplink.rate)
        return Wire(min(rates), delay)


def slowed(network: LabNetwork, slow: Iterable[SlowLink]) -> LabNetwork:
    """The network in which some pairs have a link of their own, so many times slower than what they had."""
    links = dict(network.links)
    for one in slow:
        own = links.get(one.ends)
        links[one.ends] = Wire(network.between(*one.ends).rate / one.times, own.delay if own else network.delay)
    return msgspec.structs.replace(network, links=links)


def window(network: LabNetwork) -> int:
    """Bytes that a connection may have on its way: a round trip's twice over, and room for both ends to be late."""
    pairs = [network.between(a, b) for a in range(network.hosts) for b in range(a)]
    longest = max(pair.rate * 2 * pair.delay for pair in pairs)
    if longest > MOST_ON_WAY:
        what = (
            f"{longest / 2**30:.3g} GiB are on their way in a round trip, and TCP has at most {MOST_ON_WAY / 2**30:g}"
        )
        raise BadInput(what, where="--rate, --delay", fix="a smaller rate, or a shorter delay")
    return min(round(4 * longest) + (1 << 21), MOST_ON_WAY - 1)


def address(host: int) -> str:
    """Of a host, on its device."""
    return f"10.77.0.{host + 1}"


# what the switch is told


class Path(NamedTuple):
    """Pipes that a packet takes before and after the delay, by name."""

    delay: float
    near: tuple[str, ...]
    far: tuple[str, ...]


def wiring(network: LabNetwork) -> str:
    """The pipes and paths of a network, in the words of `switch.c`."""
    rates = _pipes(network)
    numbers = {name: at for at, name in enumerate(rates)}
    lines = [f"pipe {rate!r}" for rate in rates.values()]
    for a, b in permutations(range(network.hosts), 2):
        path = _path(network, a, b)
        near, far = (" ".join(str(numbers[name]) for name in side) for side in (path.near, path.far))
        lines.append(f"path {a} {b} {round(path.delay * 1e9)} {near} / {far}")
    return "\n".join([*lines, "go", ""])


def _pipes(network: LabNetwork) -> dict[str, float]:
    """Every pipe with its rate: each port, way out and link has one for each direction."""
    found: dict[str, float] = {}
    for host in range(network.hosts):
        found |= {f"out {host}": network.port(host), f"in {host}": network.port(host)}
    if network.uplink:
        for island in range(network.islands):
            found |= {f"up {island}": network.uplink.rate, f"down {island}": network.uplink.rate}
    for (a, b), wire in network.links.items():
        found |= {f"link {a} {b}": wire.rate, f"link {b} {a}": wire.rate}
    return found


def _path(network: LabNetwork, a: int, b: int) -> Path:
    home, there = network.island_of(a), network.island_of(b)
    near, far = [f"out {a}"], [f"in {b}"]
    if home != there:
        near.append(f"up {home}")
        far.insert(0, f"down {there}")
    if (min(a, b), max(a, b)) in network.links:
        near.append(f"link {a} {b}")
    return Path(network.between(a, b).delay, tuple(near), tuple(far))


def pipe_number(network: LabNetwork, name: str) -> int:
    """The number by which the switch knows a pipe."""
    return list(_pipes(network)).index(name)


def check_traffic(network: LabNetwork, flows: Sequence[BackgroundTraffic]) -> None:
    """Refuse other jobs that leave nothing of a pipe to ranks, which would wait for ever."""
    rates = _pipes(network)
    sent = dict.fromkeys(rates, 0.0)
    ways = [(flow, _path(network, flow.source, flow.target)) for flow in flows]
    pipes = [(flow, pipe) for flow, path in ways for pipe in (*path.near, *path.far)]
    for flow, pipe in pipes:
        sent[pipe] += flow.rate
    for flow, pipe in pipes:
        if sent[pipe] >= rates[pipe]:
            raise nothing_left(sent[pipe], rates[pipe], flow.source, flow.target)
