"""What one collective costs: the cheapest of what the library could do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import msgspec

from foretell.caches import forgettable
from foretell.cost.collectives._library import ALGORITHMS, Library, library_of
from foretell.cost.collectives._protocols import Protocol
from foretell.cost.collectives._traffic import KINDS, POINT_KINDS, AlgorithmTraffic, CollectiveAlgorithm, Load
from foretell.cost.fabric import Group, Route, route
from foretell.errors import BadInput, unknown
from foretell.hardware.cluster import Cluster
from foretell.units import Quantity

EVIDENCE = ("measured sweeps", "carried over", "datasheet")
"""How the figures of a link were obtained, best first."""


class CollectivePrice(msgspec.Struct, frozen=True):
    """Seconds of one collective, and what they are made of.

    With an array of payloads every field but `level` is an array.
    """

    seconds: Quantity
    algorithm: Any  # a name
    protocol: Any
    level: str  # the outermost level that is crossed; "" for one rank
    volume: Quantity  # bytes on the link that limits
    latency: Quantity  # seconds
    bandwidth: Quantity
    filling: Quantity  # of the pipeline; with the two above it makes `seconds`
    provenance: Any  # of EVIDENCE


class AlgorithmCost(msgspec.Struct, frozen=True):
    """One algorithm with one protocol on one route: seconds as a function of the tensor's bytes."""

    algorithm: str
    protocol: str
    latency: float
    slope: float  # seconds a byte
    fill: float
    volume: float  # bytes a byte on the link that limits
    provenance: str

    def parts(self, size: Quantity) -> tuple[Quantity, Quantity, Quantity]:
        """Latency, bandwidth and filling."""
        bandwidth = self.slope * size
        return self.latency, bandwidth, _root(self.fill * bandwidth)

    def seconds(self, size: Quantity) -> Quantity:
        latency, bandwidth, filling = self.parts(size)
        return latency + bandwidth + filling


def collective_seconds(
    kind: str,
    payload: Quantity,
    group: Group,
    cluster: Cluster,
    *,
    messages: int = 1,
    sharing: int = 1,
    servers: int = 1,
    library: Library | None = None,
) -> CollectivePrice:
    """What a collective costs among the ranks of a group that lies on a cluster.

    `payload` is what one rank contributes, in bytes: its share in an all-gather, all of it in the others.
    `messages` are sent one after the other. `sharing` groups of the job use the same network ports at once
    (`fabric.sharing`). For a pipeline's `send` the group is the whole axis: its slowest pair counts. `servers`
    hold the weights for `push` and `pull`. Without `library` it is the one this cluster's devices use.
    """
    if kind not in KINDS:
        raise unknown("kind of communication", kind, KINDS)
    chosen = library_of(cluster) if library is None else library
    if group.ranks == 1 or chosen.free:
        nothing = payload * 0.0
        return CollectivePrice(nothing, "none", "none", "", nothing, nothing, nothing, nothing, EVIDENCE[0])
    found = lines(kind, group, cluster, sharing, servers, chosen)
    way = route(group, cluster, sharing, servers)
    size = payload * group.ranks if kind == "all-gather" else payload
    price = _least(found, size, messages, way.level)
    price = price if library or not way.measured else _corrected(price, kind, payload, group, way)
    return price if cluster.pace == 1 else _times(price, cluster.pace)


def _corrected(price: CollectivePrice, kind: str, payload: Quantity, group: Group, way: Route) -> CollectivePrice:
    """The price as a calibration of these links has it, where it timed such messages."""
    known = way.measured.get(kind) or (way.measured.get("send") if kind in POINT_KINDS else None)
    if known is None:
        return price
    timed = _times(price, known.factor(payload, group.ranks))
    return msgspec.structs.replace(timed, provenance=EVIDENCE[0])


def _times(price: CollectivePrice, factor: Quantity) -> CollectivePrice:
    """The same, so many times as long."""
    return msgspec.structs.replace(
        price,
        seconds=price.seconds * factor,
        latency=price.latency * factor,
        bandwidth=price.bandwidth * factor,
        filling=price.filling * factor,
    )


@forgettable
@lru_cache(maxsize=4096)
def lines(
    kind: str, group: Group, cluster: Cluster, sharing: int, servers: int, library: Library
) -> tuple[AlgorithmCost, ...]:
    """Everything that a library could do for one kind of collective on one group."""
    way = route(group, cluster, sharing, servers)
    found: list[AlgorithmCost] = []
    for name in library.offers(kind, way):
        algorithm = cast(CollectiveAlgorithm, ALGORITHMS[name])
        traffic = algorithm.traffic(kind, way)
        if traffic is None:
            continue
        found += [
            _line(name, protocol, traffic, way)
            for protocol in library.protocols
            if algorithm.FAMILY in protocol.families and protocol.runs_on(way)
        ]
    if not found:
        raise BadInput(
            f"{library.name} has no way to do {kind} among {group.ranks} ranks, {group.stride} apart",
            where=cluster.text,
            fix="a library with more algorithms",
        )
    return tuple(found)


def _line(algorithm: str, protocol: Protocol, traffic: AlgorithmTraffic, way: Route) -> AlgorithmCost:
    timed = [(protocol.seconds_inside(load), load) for load in traffic.inside]
    timed += [(protocol.seconds_network(load), load) for load in traffic.network]
    slowest, limit = max(timed, key=lambda pair: pair[0])
    slope = slowest if traffic.pipelined else math.fsum(seconds for seconds, _ in timed)
    known = [evidence(limit)] if traffic.pipelined else [evidence(load) for _, load in timed]
    known += [_read(crossing.link.sources["hop"]) for crossing in way.crossings if "hop" in crossing.link.sources]
    latency = protocol.latency(traffic.steps, way)
    return AlgorithmCost(algorithm, protocol.name, latency, slope, protocol.fill, limit.volume, _worst(known))


def evidence(load: Load) -> str:
    """How a link's figures for this class of collectives were obtained."""
    link = load.link
    figures = [key for key in link.efficiency if key.partition("@")[0] == load.collective_class]
    if not figures:  # the ring's figure stands in
        return _worst(["carried over", evidence(msgspec.structs.replace(load, collective_class="ring"))])
    if link.ceiling < link.bandwidth * link.efficiency_of(load.collective_class, load.ranks):
        return _read(link.sources["ceiling"])
    return _worst(_read(link.sources[f"efficiency.{figure}"]) for figure in figures)


def _read(source: str) -> str:
    """What a source says about itself."""
    if source.startswith("carried over"):
        return "carried over"
    return "measured sweeps" if "measured" in source or "sweeps" in source else "datasheet"


def _worst(found: Iterable[str]) -> str:
    return max(found, key=EVIDENCE.index)


def _least(found: tuple[AlgorithmCost, ...], size: Quantity, messages: int, level: str) -> CollectivePrice:
    """The cheapest line, for one size or for each of an array."""
    if isinstance(size, int | float):
        return _price(min(found, key=lambda line: line.seconds(size)), size, messages, level)
    import numpy

    prices = [_price(line, size, messages, level) for line in found]
    best = numpy.argmin(numpy.stack([line.seconds(size) for line in found]), axis=0)

    def chosen(field: str) -> Any:
        return numpy.choose(best, [getattr(price, field) for price in prices])

    return CollectivePrice(
        level=level, **{field: chosen(field) for field in CollectivePrice.__struct_fields__ if field != "level"}
    )


def _price(line: AlgorithmCost, size: Quantity, messages: int, level: str) -> CollectivePrice:
    latency, bandwidth, filling = line.parts(size)
    return CollectivePrice(
        seconds=messages * (latency + bandwidth + filling),
        algorithm=line.algorithm,
        protocol=line.protocol,
        level=level,
        volume=messages * line.volume * size,
        latency=messages * latency,
        bandwidth=messages * bandwidth,
        filling=messages * filling,
        provenance=line.provenance,
    )


def _root(value: Quantity) -> Quantity:
    if isinstance(value, int | float):
        return math.sqrt(value)
    import numpy

    return numpy.sqrt(value)
