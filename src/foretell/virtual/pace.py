"""How long everything takes: figures that somebody gives, or those the oracle predicts for a model on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import Disturbance
from foretell.learning.topology import Topology
from foretell.learning.vector import Shapes
from foretell.model.graph import Graph
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.oracle.predict import predict
from foretell.oracle.request import read
from foretell.oracle.resolve import resolve

FP32 = 4.0
"""Bytes of a weight or a gradient as it travels when nothing compresses it."""


class DoesNotFit(BadInput):
    """A whole copy of the model is more than a rank holds."""


class Flight(NamedTuple):
    """One message: seconds that it is under way, and seconds that both ports are busy with it."""

    latency: float
    busy: float


class NetworkModel(Protocol):
    def flight(self, source: int, target: int, size: float) -> Flight:
        """Of a message between two nodes, in bytes."""
        ...

    def ports(self, source: int, target: int) -> tuple[int, int]:
        """Through which a message leaves and comes in; each carries one at a time, each way."""
        ...

    def port_count(self, nodes: int) -> int:
        """Ports of so many nodes."""
        ...


class Even:
    """Every two nodes are as far from each other: a latency and a bandwidth."""

    def __init__(self, bandwidth: float, latency: float = 0.0) -> None:
        self._rate, self._latency = bandwidth, latency

    def flight(self, source: int, target: int, size: float) -> Flight:
        return Flight(self._latency, size / self._rate)

    def ports(self, source: int, target: int) -> tuple[int, int]:
        return source, target  # one each

    def port_count(self, nodes: int) -> int:
        return nodes


class OnCluster:
    """Nodes are ranks of a cluster, in its order; those of a domain reach each other over its links.

    What leaves a domain goes through the network port beside the rank, which ranks share where there are fewer ports.
    The network's ports have the odd numbers, a rank's own the even ones.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._domain = cluster, cluster.domain
        ports = next((level.ports for level in cluster.levels if level.link.per_port), cluster.ranks_per_node)
        self._sharing = max(1, cluster.ranks_per_node // max(1, ports))  # ranks at one port
        self._known: dict[tuple[bool, float], Flight] = {}

    def flight(self, source: int, target: int, size: float) -> Flight:
        far = self._far(source, target)
        known = self._known.get((far, size))
        return known if known is not None else self._priced(far, size)

    def _far(self, source: int, target: int) -> bool:
        return source // self._domain != target // self._domain and self._cluster.ranks > self._domain

    def ports(self, source: int, target: int) -> tuple[int, int]:
        if self._far(source, target):
            return 2 * (source // self._sharing) + 1, 2 * (target // self._sharing) + 1
        return 2 * source, 2 * target

    def port_count(self, nodes: int) -> int:
        return 2 * nodes

    def _priced(self, far: bool, size: float) -> Flight:
        price = collective_seconds("send", size, Group(2, self._domain if far else 1), self._cluster)
        latency, seconds = float(price.latency), float(price.seconds)
        found = self._known[far, size] = Flight(latency, seconds - latency)
        return found


class Disturbed:
    """A network on which some links are slow, and other jobs use some ports."""

    def __init__(self, calm: NetworkModel, found: Disturbance) -> None:
        self._calm, self._found = calm, found
        self.ports, self.port_count = calm.ports, calm.port_count

    def flight(self, source: int, target: int, size: float) -> Flight:
        latency, busy = self._calm.flight(source, target, size)
        if not busy:
            return Flight(latency, busy)
        return Flight(latency, size / self._found.left(size / busy, source, target))


class Seated:
    """Nodes on ranks: workers on those of their numbers, servers wherever they were put.

    What a server and the worker on its rank tell each other takes no time, and no port.
    """

    def __init__(self, ranks: NetworkModel, workers: int, seats: Sequence[int]) -> None:
        self._ranks, self._seats = ranks, [*range(workers), *seats]
        self._inside = ranks.port_count(max(self._seats) + 1)  # a port that nothing ever waits for

    def flight(self, source: int, target: int, size: float) -> Flight:
        here, there = self._seats[source], self._seats[target]
        return INSIDE if here == there else self._ranks.flight(here, there, size)

    def ports(self, source: int, target: int) -> tuple[int, int]:
        here, there = self._seats[source], self._seats[target]
        return (self._inside, self._inside) if here == there else self._ranks.ports(here, there)

    def port_count(self, nodes: int) -> int:
        return self._inside + 1


INSIDE = Flight(0.0, 0.0)


def seats(topology: Topology, workers: int, cluster: Cluster, where: str) -> Sequence[int]:
    """The ranks of servers: `beside` workers, or each on a host of its `own` behind all workers."""
    if where == "beside":
        return topology.beside(workers)
    apart = cluster.domain if cluster.ranks > cluster.domain else 1
    first = -(-workers // apart) * apart
    return [first + apart * server for server in range(topology.servers(workers))]


class Pace(NamedTuple):
    """Seconds of one gradient, of one update of the whole model (U_w), of one sum of two (R_w), and the network."""

    compute: float
    update: float
    reduce: float
    size: float  # bytes of the whole model as it travels
    network: NetworkModel
    shapes: Shapes = ()  # of the tensors that travel; none: those of what is learnt

    @property
    def transmit(self) -> float:
        """Seconds of the whole model from node to node (T_w), the first two that there are."""
        latency, busy = self.network.flight(0, 1, self.size)
        return latency + busy


def even(compute: float, transmit: float, reduce: float = 0.0, update: float = 0.0, latency: float = 0.0) -> Pace:
    """A pace in the terms of Langer et al. 2020, section 3.4, for a model of one byte."""
    return Pace(compute, update, reduce, 1.0, Even(1.0 / transmit if transmit else float("inf"), latency))


def on_cluster(model: str, cluster: Cluster, batch: int, trainer: str = "pytorch", optimizer: str = "") -> Pace:
    """The pace that `predict` has for one rank of a cluster, with batches of so many samples a worker."""
    step, recorded = (
        predict(
            resolve(read(model=model, plan=plan, batch=batch, trainer=trainer, optimizer=optimizer)).setting, cluster
        )
        for plan in ("dp1", "dp1 +captured")
    )
    graph = load(model, batch)
    size = FP32 * float(totals(graph).trainable)
    if not step.fits:
        raise DoesNotFit(f"{model} does not fit a rank of {cluster.text}", where="--on", fix="a smaller model or batch")
    update = recorded.breakdown.get("optimizer", 0.0)  # U_w is bytes over a rate: no launches of kernels
    reduce = 3 * size / cluster.device.memory_bandwidth  # two are read, one is written
    return Pace(step.step_seconds - update, update, reduce, size, OnCluster(cluster), weight_shapes(graph))


def weight_shapes(graph: Graph) -> Shapes:
    """Of the tensors that have gradients."""
    return tuple(
        tuple(int(dim.size) for dim in tensor.dims)
        for block in graph.blocks
        for tensor in block.tensors
        if tensor.role == "parameter" and tensor.trainable
        for _ in range(block.times)
    )
