"""What is wrong with a machine: ranks that compute slowly, links that are slow, another job on the links.

One value, whoever is given it: `run` and `lab run` make it happen, `predict`, `compare` and `simulate` reckon with it.
Ranks have their numbers of a plan; so have the hosts of a lab, which have a rank each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.hardware.cluster import Cluster, Level

SLOW_RANK, SLOW_LINK, TRAFFIC = "--slow-rank", "--slow-link", "--traffic"

NUMBER = "[0-9]{1,9}"
"""Of a rank, as it is typed."""


class SlowRank(msgspec.Struct, frozen=True):
    """A rank that takes so many times as long for all that it computes; its messages do not."""

    rank: int
    times: float


class SlowLink(msgspec.Struct, frozen=True):
    """Two ranks whose link has so many times less bandwidth, each way."""

    ends: tuple[int, int]
    times: float


class BackgroundTraffic(msgspec.Struct, frozen=True):
    """Another job that sends from one rank's port to another's, at a steady rate."""

    source: int
    target: int
    rate: float  # B/s


class Disturbance(msgspec.Struct, frozen=True):
    """All that is wrong; nothing, where nothing is said."""

    ranks: tuple[SlowRank, ...] = ()
    links: tuple[SlowLink, ...] = ()
    traffic: tuple[BackgroundTraffic, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranks or self.links or self.traffic)

    def slowness(self, rank: int) -> float:
        """How many times as long as its likes a rank computes."""
        return next((one.times for one in self.ranks if one.rank == rank), 1.0)

    def left(self, bandwidth: float, source: int, target: int) -> float:
        """B/s that are left of a link from one rank to another: other jobs share its ports, out of one and into one."""
        slow = next((one.times for one in self.links if one.ends == (min(source, target), max(source, target))), 1.0)
        leaving = sum(one.rate for one in self.traffic if one.source == source)
        coming = sum(one.rate for one in self.traffic if one.target == target)
        found = bandwidth / slow - max(leaving, coming)
        if found <= 0:
            raise nothing_left(max(leaving, coming), bandwidth / slow, source, target)
        return found

    def check(self, ranks: int) -> None:
        """Refuse what is about ranks that are not there."""
        named = [(one.rank, SLOW_RANK) for one in self.ranks]
        named += [(end, SLOW_LINK) for one in self.links for end in one.ends]
        named += [(end, TRAFFIC) for one in self.traffic for end in (one.source, one.target)]
        for rank, where in named:
            if rank >= ranks:
                what = f"there is no rank {rank} among {ranks}"
                raise BadInput(what, where=where, fix=f"0 to {ranks - 1}" if ranks > 1 else "more ranks")


CALM = Disturbance()


def nothing_left(others: float, whole: float, source: int, target: int) -> BadInput:
    """Why a link that other jobs send so many B/s over is none."""
    sent, carried = 8e-6 * others, 8e-6 * whole
    what = f"other jobs send {sent:g} Mb/s over a link of {carried:g} Mb/s between ranks {source} and {target}"
    return BadInput(what, where=TRAFFIC, fix="less than the link carries")


# as it is typed


def read(ranks: Sequence[str] = (), links: Sequence[str] = (), traffic: Sequence[str] = ()) -> Disturbance:
    """From words: ranks as 1:2x, links as 0-1:4x, another job as 0-1:500Mbit."""
    found = Disturbance(tuple(map(_rank, ranks)), tuple(map(_link, links)), tuple(map(_traffic, traffic)))
    _once([one.rank for one in found.ranks], SLOW_RANK)
    _once([one.ends for one in found.links], SLOW_LINK)
    return found


def pair(text: str, where: str) -> tuple[int, int]:
    """Two ends, as they are typed: 0-1."""
    form = re.fullmatch(rf"({NUMBER})-({NUMBER})", text.strip())
    if form is None or int(form[1]) == int(form[2]):
        raise BadInput(f"{text!r} is not two ends", where=where, fix="0-1")
    return int(form[1]), int(form[2])


def _rank(text: str) -> SlowRank:
    rank, _, times = text.partition(":")
    if not re.fullmatch(NUMBER, rank.strip()):
        raise BadInput(f"{text!r} is not a rank and a factor", where=SLOW_RANK, fix="1:2x")
    return SlowRank(int(rank), _times(text, times, SLOW_RANK, "1:2x"))


def _link(text: str) -> SlowLink:
    ends, _, times = text.partition(":")
    a, b = pair(ends, SLOW_LINK)
    return SlowLink((min(a, b), max(a, b)), _times(text, times, SLOW_LINK, "0-1:4x"))


def _traffic(text: str) -> BackgroundTraffic:
    ends, _, rate = text.partition(":")
    if not rate:
        raise BadInput(f"{text!r} says no rate", where=TRAFFIC, fix="0-1:500Mbit")
    return BackgroundTraffic(*pair(ends, TRAFFIC), quantity.line_rate(rate, TRAFFIC))


def _times(text: str, times: str, where: str, example: str) -> float:
    form = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)x?", times.strip())
    if form is None or not 1 <= float(form[1]) < math.inf:
        raise BadInput(f"{text!r} does not say how many times slower", where=where, fix=f"{example}; 1 or more")
    return float(form[1])


def _once(keys: Sequence[object], where: str) -> None:
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise BadInput(f"{twice} is given twice", where=where, fix=f"one {where} for each")


# as a cluster


def with_disturbed_links(cluster: Cluster, found: Disturbance) -> Cluster:
    """The cluster whose links are as slow as the slowest of each level: a group waits for it."""
    if not (found.links or found.traffic):
        return cluster
    levels = tuple(_slower(level, _left(cluster, level, found)) for level in cluster.levels)
    return msgspec.structs.replace(cluster, levels=levels)


def _slower(level: Level, bandwidth: float) -> Level:
    if bandwidth >= level.link.bandwidth:
        return level
    return msgspec.structs.replace(level, link=msgspec.structs.replace(level.link, bandwidth=bandwidth))


def _left(cluster: Cluster, level: Level, found: Disturbance) -> float:
    """B/s of a level's link that are left between the two ranks that have least."""
    here = msgspec.structs.replace(
        found,
        links=tuple(one for one in found.links if joins(cluster, level, *one.ends)),
        traffic=tuple(one for one in found.traffic if joins(cluster, level, one.source, one.target)),
    )
    pairs = {way for one in here.links for way in (one.ends, one.ends[::-1])}
    pairs |= {(one.source, one.target) for one in here.traffic}
    return min((here.left(level.link.bandwidth, *ends) for ends in pairs), default=level.link.bandwidth)


def joins(cluster: Cluster, level: Level, a: int, b: int) -> bool:
    """Whether this level is the one at which two ranks meet."""
    unit = cluster.unit(level)
    below = unit // level.size
    return a // unit == b // unit and a // below != b // below
