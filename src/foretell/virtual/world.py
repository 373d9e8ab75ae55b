"""Workers, a server and the messages between them, on a clock: what algorithms are written against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretell.errors import BadInput
from foretell.learning import world as learning
from foretell.learning.algorithm import Algorithm
from foretell.learning.compressor import Compressor, Sender, dense
from foretell.learning.compressors.none import Unchanged
from foretell.learning.topologies._patterns import circle
from foretell.learning.topology import MessageRound, ShareMessage, Topology
from foretell.learning.vector import Rows, Vector
from foretell.learning.world import Push, WeightServer, Worker
from foretell.virtual.disturbance import CALM, Disturbances
from foretell.virtual.engine import EventLoop
from foretell.virtual.pace import Pace
from foretell.virtual.problem import GradientPool, Ticket, TrainingProblem
from foretell.virtual.run_state import NO_LIMITS, RunLimits, RunState, TraceSpan

FEW_NUMBERS = 64.0
"""Bytes of a letter without a model."""

NO_ROWS = np.zeros(0, dtype=np.int64)


class VirtualWorld(learning.World):
    """A run while it goes on. `rate` is that of one synchronous step of all workers."""

    def __init__(
        self,
        problem: TrainingProblem,
        algorithm: Algorithm,
        topology: Topology,
        compressor: Compressor | None,
        pace: Pace,
        workers: int,
        *,
        batch: int = 8,
        rate: float = 0.1,
        momentum: float = 0.0,
        seed: int = 0,
        disturbances: Disturbances = CALM,
        batched: bool = True,
        limits: RunLimits = NO_LIMITS,
        look_every: int = 0,
        traced: bool = False,
        rows: Callable[[int, int], Rows] | None = None,
    ) -> None:
        self.problem, self.algorithm, self.topology = problem, algorithm, topology
        self.compressor = compressor.of_batch(batch) if compressor is not None else None
        self.pace, self.count, self.batch, self.rate, self.momentum = pace, workers, batch, rate, momentum
        self.disturbances, self.limits = disturbances, limits
        self._chosen = rows  # by worker and gradient; None: drawn
        self.engine = EventLoop()
        self.pool = GradientPool(batched)
        self.server = WeightServer(problem.start(seed))
        self.draws = np.random.default_rng([seed, workers, 1])
        self._shapes = pace.shapes or problem.shapes  # that bytes are counted over
        self._weight = pace.size / dense(self._shapes)  # bytes that travel for each byte of these
        self.workers = [
            Worker(at, self.server.weights, problem, rate, self._sender(at, seed), seed) for at in range(workers)
        ]
        nodes = workers + topology.servers(workers)
        self._flight, self._through = pace.network.flight, pace.network.ports
        self._ports_out = [0.0] * pace.network.port_count(nodes)  # when they are free
        self._ports_in = list(self._ports_out)
        self.out_seconds, self.in_seconds = list(self._ports_out), list(self._ports_out)  # that they were busy
        self.bytes = {"up": 0.0, "down": 0.0, "peers": 0.0}
        self.staleness: Counter[int] = Counter()
        self.absorbed = 0  # gradients
        self.waited = 0.0  # seconds of all workers from the end of a gradient to the next one's beginning
        self.failures = 0
        self.curve: list[RunState] = []
        self.spans: list[TraceSpan] | None = [] if traced else None
        self._look_every = look_every or workers
        self._next_look = 0
        self._looked: Callable[[], None] = lambda: None
        self._pushed: list[tuple[Push, float]] = []  # that wait for a collective, with their bytes
        self._squeezed: Compressor | None = None  # what becomes of sums in the collective under way
        self._size_of_one = pace.size
        self._legs: dict[tuple[bool, int], Sequence[Sequence[ShareMessage]]] = {}
        self._check()

    def _check(self) -> None:
        name = type(self.algorithm).__module__.rpartition(".")[2]
        if self.topology.collective and not self.algorithm.barrier:
            fix = (
                "a topology with a server (single, sharded, proxies), or an algorithm that waits for all (sync, local)"
            )
            raise BadInput(f"{name} does not wait for all, and this topology carries everybody's at once", fix=fix)
        if self.disturbances.changes and not self.algorithm.elastic:
            raise BadInput(f"{name} knows its neighbours: nobody can join or leave", fix="sync, async, gosgd, local")
        if any(change.worker >= self.count for change in self.disturbances.changes):
            raise BadInput("a worker joins or leaves that is not among them", fix=f"workers 0 to {self.count - 1}")

    def _sender(self, at: int, seed: int) -> Sender:
        draws = np.random.default_rng([seed, at, 2])
        return Sender(self.compressor or Unchanged(), self.problem.shapes, draws, self._shapes)

    # what a person asks

    def run(self, looked: Callable[[], None] = lambda: None) -> None:
        """Until a limit is reached, or nobody has anything left to do; `looked` is called at each look at the loss."""
        self._looked = looked
        self.algorithm.begin(self)
        self.look()
        for worker in self.workers:
            worker.present = not self.disturbances.away_at_first(worker.number)
            if worker.present:
                self.algorithm.start(self, worker)
        for change in self.disturbances.changes:
            self.engine.at(change.seconds, self._changed, self.workers[change.worker], change.joins)
        with np.errstate(all="ignore"):  # what diverges is told by its loss
            self.engine.run(self.limits.seconds, self.limits.events)
        if self.absorbed and (not self.curve or self.curve[-1].seconds < self.now) and not self.engine.stopped:
            self.look()

    @property
    def now(self) -> float:
        return self.engine.now

    @property
    def present(self) -> int:
        return sum(worker.present for worker in self.workers) if self.disturbances.changes else self.count

    # what algorithms do

    def compute(self, worker: Worker) -> None:
        """A worker begins a gradient at its weights."""
        ticket = worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
        seconds = self.pace.compute
        if self.disturbances is not CALM:
            seconds *= self.disturbances.factor(worker.number, self.count, worker.draws)
            fails = self.disturbances.failure(worker.draws)
            if fails < seconds:
                self.engine.at(self.now + fails, self._failed, worker, ticket)
                return
        if worker.clock:
            self.waited += self.engine.now - worker.until
        worker.busy += seconds
        worker.until = self.engine.now + seconds
        if self.spans is not None:
            self.spans.append(TraceSpan(worker.number, "gradient", self.now, seconds))
        self.engine.at(worker.until, self._computed, worker, ticket)

    def _rows(self, worker: Worker) -> Rows:
        if self._chosen is not None:
            return self._chosen(worker.number, worker.clock)
        return worker.draws.integers(self.problem.samples, size=self.batch) if self.problem.samples else NO_ROWS

    def _computed(self, worker: Worker, ticket: Ticket) -> None:
        if ticket is not worker.ticket:  # it left meanwhile
            return
        worker.ticket = None
        worker.clock += 1
        self.algorithm.on_gradient(self, worker, self.pool.take(ticket))

    def push(self, worker: Worker, vector: Vector, weights: bool = False, asks: bool = True) -> None:
        """Send a gradient (or weights, which are never compressed) to whoever holds the weights that count."""
        arrives, size = (vector, dense(self._shapes)) if weights else worker.sender.send(vector)
        push = Push(worker, arrives, worker.weights, worker.version, worker.clock, asks)
        size *= self._weight
        if self.topology.collective:
            self._squeezed = None if weights else self.compressor
            self._pushed.append((push, size))
            self._gather_if_all()
            return
        self._travel(self._way(worker, up=True), 0, size, "up", self.algorithm.on_push, self, push)

    def serve(self, pushes: int, act: Callable[[], None]) -> None:
        """Have the server act after the work of summing so many pushes and updating once."""
        owners = self.topology.owners(self.present if self.topology.collective else self.count)
        begin = max(self.engine.now, self.server.free)
        summing = 0.0 if self.topology.collective else (pushes - 1) * self.pace.reduce  # else: summed on the way
        seconds = (summing + self.pace.update) / owners
        self.server.free = begin + seconds
        if self.spans is not None and not self.topology.replicated:
            self.spans.append(TraceSpan(self.count, "update", begin, seconds))
        self.engine.at(self.server.free, act)

    def learnt(self, gradients: int) -> None:
        """So many more gradients are in the weights that are judged."""
        self.absorbed += gradients
        if self.absorbed >= self._next_look:
            self._next_look += self._look_every * (1 + (self.absorbed - self._next_look) // self._look_every)
            self.engine.at(self.engine.now, self.look)

    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        """Send the server's weights to workers; they have them as they are now."""
        weights, version = self.server.weights, self.server.version
        if self.topology.collective and len(workers) >= self.present:
            end = self._spread()
            for worker in workers:
                self.engine.at(end, self._replied, worker, weights, version, clock)
            return
        size = self.pace.size
        for worker in workers:
            if self.topology.collective:
                self._carry_alone(worker, size, weights, version)
            else:
                self._travel(
                    self._way(worker, up=False), 0, size, "down", self._replied, worker, weights, version, clock
                )

    def _carry_alone(self, worker: Worker, size: float, weights: Vector, version: int) -> None:
        """One that joins or returns where nobody serves: its neighbour sends what all have."""
        others = [(other.number - worker.number) % self.count for other in self.members() if other is not worker]
        giver = (worker.number + min(others, default=0)) % self.count
        arrival = self._carry(giver, worker.number, size, self.now, "down") if others else self.now
        self.engine.at(arrival, self._replied, worker, weights, version)

    def send(self, worker: Worker, target: int, said: Any) -> None:
        """A worker sends its model, with whatever an algorithm says of it, to another."""
        size = self.pace.size
        arrival = self._carry(worker.number, target, size, self.engine.now, "peers")
        self.engine.at(arrival, self._said, self.workers[target], worker.number, said)

    def tell(self, worker: Worker, target: int, said: Any) -> None:
        arrival = self._carry(worker.number, target, FEW_NUMBERS, self.engine.now, "peers")
        self.engine.at(arrival, self._said, self.workers[target], worker.number, said)

    def stop(self) -> None:
        self.engine.stopped = True

    def look(self) -> None:
        """Judge what would be handed over now."""
        judged = self.problem.judged(self.algorithm.models(self))
        updates = self.server.version if self.topology.central else self.absorbed  # of copies each step is one
        self.curve.append(RunState(self.absorbed * self.batch, updates, self.engine.now, judged.loss, judged.metric))
        over = judged.loss <= self.limits.loss or self.absorbed >= self.limits.gradients
        if over or not math.isfinite(judged.loss):
            self.stop()
        self._looked()

    # messages

    def _replied(self, worker: Worker, weights: Vector, version: int, clock: int = 0) -> None:
        if worker.present:
            worker.cache_clock = clock
            self.algorithm.on_reply(self, worker, weights, version)

    def _said(self, worker: Worker, sender: int, said: Any) -> None:
        self.algorithm.on_message(self, worker, sender, said)

    def _way(self, worker: Worker, up: bool) -> Sequence[Sequence[ShareMessage]]:
        key = (up, worker.number)
        known = self._legs.get(key)
        if known is None:
            way = self.topology.up if up else self.topology.down
            known = self._legs[key] = way(worker.number, self.count)
        return known

    def _travel(
        self,
        legs: Sequence[Sequence[ShareMessage]],
        at: int,
        size: float,
        kind: str,
        act: Callable[..., None],
        *given: Any,
    ) -> None:
        """One leg after the other; then act."""
        now = self.engine.now
        if at == len(legs):
            self.engine.at(now, act, *given)
            return
        arrival = now
        for hop in legs[at]:
            arrival = max(arrival, self._carry(hop.source, hop.target, size * hop.share, now, kind))
        if at + 1 == len(legs):
            self.engine.at(arrival, act, *given)
        else:
            self.engine.at(arrival, self._travel, legs, at + 1, size, kind, act, *given)

    def _carry(self, source: int, target: int, size: float, ready: float, kind: str) -> float:
        """When a message is there: both ports take one at a time, each way."""
        latency, busy = self._flight(source, target, size)
        out, into = self._ports_out, self._ports_in
        leaves, comes = self._through(source, target)
        start = max(ready, out[leaves], into[comes])
        out[leaves] = into[comes] = start + busy
        self.out_seconds[leaves] += busy
        self.in_seconds[comes] += busy
        self.bytes[kind] += size
        if self.spans is not None:
            self.spans.append(TraceSpan(source, f"{kind} to {target}", start, busy + latency))
        return start + latency + busy

    # collectives

    def _gather_if_all(self) -> None:
        if not self._pushed or len(self._pushed) < self.present:
            return
        waiting, self._pushed = self._pushed, []
        self._size_of_one = max(size for _, size in waiting)
        end = self._play([self._everybodys()] if self._apart() else self.topology.gather(self.present), "up")
        for push, _ in waiting:
            self.engine.at(end, self.algorithm.on_push, self, push)

    def _spread(self) -> float:
        """When all have the new weights, or the sum to make them from."""
        return self.now if self._apart() else self._play(self.topology.spread(self.present), "down")

    def _apart(self) -> bool:
        """Whether every worker needs everybody's gradient: no sum of compressed ones can be sent on."""
        return self.topology.replicated and self._squeezed is not None and self._squeezed.sums == "apart"

    def _everybodys(self) -> MessageRound:
        """Each gradient all the way round a ring."""
        return MessageRound(circle(self.present), times=self.present - 1)

    def _size_of(self, kind: str, inside: int) -> float:
        """Bytes of a message of the whole model with the sum of so many gradients in it."""
        if kind == "down" and not self.topology.replicated:
            return self.pace.size  # the server's weights
        if self._squeezed is None or self._apart():
            return self._size_of_one
        one = self._size_of_one / self._weight
        return self._squeezed.size_of_sum(one, min(inside, self.present), self._shapes) * self._weight

    def _play(self, rounds: Sequence[MessageRound], kind: str) -> float:
        """When the last of the rounds is over. Nothing else is under way: everybody is in it."""
        time, inside = self.now, self.present if kind == "down" else 1
        for one in self._among_present(rounds):
            alike = self._squeezed is None or kind == "down" or self._apart()  # sums do not grow on the way
            for _ in range(1 if alike else one.times):
                size = self._size_of(kind, inside) * one.share
                time = self._round(one, size, one.times if alike else 1, time, kind)
                inside = inside * 2 if one.share == 1 else inside + 1
        return time

    def _among_present(self, rounds: Sequence[MessageRound]) -> Sequence[MessageRound]:
        """Rounds of as many workers as there are, with the numbers of those and of the servers."""
        if self.present == self.count:
            return rounds
        nodes = [worker.number for worker in self.members()]
        nodes += range(self.count, self.count + self.topology.servers(len(nodes)))
        return [one._replace(pairs=tuple((nodes[source], nodes[to]) for source, to in one.pairs)) for one in rounds]

    def _round(self, one: MessageRound, size: float, times: int, time: float, kind: str) -> float:
        """Messages of a round, so many times over: those of the first stand for the others."""
        if not one.pairs or not times:
            return time
        arrival = max(self._carry(source, target, size, time, kind) for source, target in one.pairs)
        end = time + times * (arrival - time + (self.pace.reduce * one.share if one.sums else 0.0))
        self.bytes[kind] += (times - 1) * size * len(one.pairs)
        for source, target in one.pairs:
            leaves, comes = self._through(source, target)
            busy = self._flight(source, target, size).busy * (times - 1)
            self.out_seconds[leaves] += busy
            self.in_seconds[comes] += busy
            self._ports_out[leaves] = max(self._ports_out[leaves], end)
            self._ports_in[comes] = max(self._ports_in[comes], end)
        return end

    # what goes wrong

    def _failed(self, worker: Worker, ticket: Ticket) -> None:
        if ticket is not worker.ticket:
            return
        self._abandon(worker)
        self.failures += 1
        self.engine.at(self.now + self.disturbances.repair, self._returned, worker)

    def _returned(self, worker: Worker) -> None:
        if worker.present:
            self.algorithm.on_return(self, worker)

    def _changed(self, worker: Worker, joins: bool) -> None:
        if joins == worker.present:
            return
        worker.present = joins
        if joins:
            self.algorithm.on_join(self, worker)
            return
        self._abandon(worker)
        self._pushed = [one for one in self._pushed if one[0].worker is not worker]
        if not self.present:
            self.stop()
            return
        self.algorithm.on_leave(self, worker)
        self._gather_if_all()

    def _abandon(self, worker: Worker) -> None:
        if worker.ticket is not None:
            self.pool.drop(worker.ticket)
            worker.ticket = None
