"""Workers, a server and what they can do: what algorithms are written against, in virtual time and for real."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretell.learning.compressor import Sender
from foretell.learning.topology import Topology
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.algorithm import Algorithm


class Worker:
    """One that computes gradients, at `weights`."""

    __slots__ = (
        *("busy", "cache_clock", "clock", "draws", "memory", "number", "present", "problem", "rate", "sender"),
        *("ticket", "until", "velocity", "version", "weights"),
    )

    def __init__(self, number: int, weights: Vector, problem: Any, rate: float, sender: Sender, seed: int) -> None:
        self.number, self.weights, self.problem, self.rate, self.sender = number, weights, problem, rate, sender
        self.version = 0  # updates of the server that are in these weights
        self.cache_clock = 0  # gradients of every worker that the server said are in them
        self.clock = 0  # gradients made
        self.present = True
        self.busy = 0.0  # seconds of gradients begun
        self.until = 0.0  # when the last of them ends
        self.velocity: Vector | None = None
        self.ticket: Any = None  # of the gradient that is under way
        self.memory: dict[str, Any] = {}  # what an algorithm keeps here
        self.draws = np.random.default_rng([seed, number])


class WeightServer:
    """The weights that count, and when the server is free again."""

    __slots__ = ("free", "velocity", "version", "weights")

    def __init__(self, weights: Vector) -> None:
        self.weights = weights
        self.version = 0
        self.velocity: Vector | None = None
        self.free = 0.0


class Push(NamedTuple):
    """What a worker pushed, at which weights it was made, and how many updates these had seen."""

    worker: Worker
    vector: Vector
    read: Vector
    version: int
    clock: int
    asks: bool = True  # waits for the weights that count; else it goes on with those it has


class Judged(NamedTuple):
    """The loss over all that is judged, and a figure that people know better (accuracy, distance to the answer)."""

    loss: float
    metric: float


class World(ABC):
    """What algorithms see. `rate` is that of one synchronous step of all workers; update rules are the same for all."""

    algorithm: Algorithm
    topology: Topology
    problem: Any
    workers: list[Worker]
    server: WeightServer
    count: int
    rate: float
    momentum: float
    staleness: Counter[int]
    amounts: Sequence[float] = ()  # of all data, by worker; empty: as much everywhere

    @property
    def present(self) -> int:
        """Workers that are there."""
        return sum(worker.present for worker in self.workers)

    def members(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.present]

    def amount(self, worker: Worker) -> float:
        """The share of all data that a worker has."""
        return self.amounts[worker.number] if self.amounts else 1.0 / self.count

    def computing(self) -> Iterator[Worker]:
        """Workers that have a gradient under way."""
        return (worker for worker in self.workers if worker.ticket is not None)

    # what travels and what takes time: somebody's clock

    @abstractmethod
    def compute(self, worker: Worker) -> None:
        """A worker begins a gradient at its weights."""

    @abstractmethod
    def push(self, worker: Worker, vector: Vector, weights: bool = False, asks: bool = True) -> None:
        """Send a gradient (or weights, which are never compressed) to whoever holds the weights that count."""

    @abstractmethod
    def serve(self, pushes: int, act: Callable[[], None]) -> None:
        """Have the server act after the work of summing so many pushes and updating once."""

    @abstractmethod
    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        """Send the server's weights to workers; they have them as they are now. `clock`: gradients of every worker that
        are in them, where an algorithm counts."""

    @abstractmethod
    def send(self, worker: Worker, target: int, said: Any) -> None:
        """A worker sends its model, with whatever an algorithm says of it, to another."""

    def tell(self, worker: Worker, target: int, said: Any) -> None:
        """The same of a few numbers, and no model."""
        self.send(worker, target, said)

    def retire(self, worker: Worker) -> None:
        """A worker makes no gradient any more, though it is there."""
        worker.ticket = None

    @abstractmethod
    def learnt(self, gradients: int) -> None:
        """So many more gradients are in the weights that are judged."""

    # how weights move

    def absorb(self, pushes: Sequence[Push], rate: float, vectors: Sequence[Vector] = ()) -> None:
        """The server takes gradients in, one after the other: one update."""
        server = self.server
        weights = server.weights
        gradients = vectors or [push.vector for push in pushes]
        if self.momentum:
            before = gradients[0] * 0 if server.velocity is None else server.velocity
            server.velocity = self.momentum * before
            weights = weights - rate * server.velocity
        for gradient in gradients:
            weights = weights - rate * gradient
            if server.velocity is not None:
                server.velocity = server.velocity + gradient
        server.weights = weights
        for push in pushes:
            self.staleness[server.version - push.version] += 1
        server.version += 1
        self.learnt(len(pushes))

    def local_step(self, worker: Worker, gradient: Vector) -> None:
        """A worker takes a gradient into its own weights."""
        if self.momentum:
            worker.velocity = gradient if worker.velocity is None else self.momentum * worker.velocity + gradient
            gradient = worker.velocity
        worker.weights = worker.weights - worker.rate * gradient
        self.learnt(1)
