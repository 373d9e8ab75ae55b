"""Two sides of one algorithm, each a world of its own: what a worker does, and what a server does.

In virtual time both lie in one world. Here a worker knows itself and what it was told; a server knows the weights, and
of each worker what it pushed. What passes between them is letters.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from foretell.learning.algorithm import Algorithm
from foretell.learning.compressor import Compressor, Sender, as_bytes
from foretell.learning.compressors.none import Unchanged
from foretell.learning.members import Composed, composed
from foretell.learning.order import GRADIENT, asked, left, pushed, replied, sent
from foretell.learning.topology import Topology
from foretell.learning.vector import Shapes, Vector
from foretell.learning.world import Push, WeightServer, Worker, World
from foretell.runtime.methods.mailbox import Letter, LetterKind, Mailbox


class Terms(NamedTuple):
    """What all sides of a run agree on before it begins."""

    method: Composed
    workers: int  # servers lie on the first ranks
    first: Vector  # the weights that everybody begins with
    shapes: Shapes
    rate: float
    momentum: float
    seed: int
    gradients: int  # that each worker makes
    amounts: tuple[float, ...] = ()  # of all data, by worker; empty: as much everywhere
    problem: Any = None  # first weights, judgements and answers of other models, where an algorithm asks for them

    @property
    def servers(self) -> int:
        """None where every worker runs the same optimizer, or has weights of its own."""
        topology = self.method.topology
        return topology.servers(self.workers) if topology.central and not topology.collective else 0

    def shares(self) -> list[slice]:
        """Which of the weights each server holds."""
        ends = [len(self.first) * at // self.servers for at in range(self.servers + 1)]
        return [slice(*both) for both in itertools.pairwise(ends)]

    def sender(self, number: int) -> Sender:
        draws = np.random.default_rng([self.seed, number, 2])
        return Sender(self.method.compressor or Unchanged(), self.shapes, draws)


class Side(World):
    """What both sides are made of. An algorithm remembers its run, so each side has one of its own."""

    def __init__(self, terms: Terms, post: Mailbox, first: Vector) -> None:
        made = composed(terms.method.text)
        self.algorithm: Algorithm = made.algorithm
        self.topology: Topology = made.topology
        self.compressor: Compressor | None = terms.method.compressor
        self.terms, self.post, self.problem = terms, post, terms.problem
        self.count, self.rate, self.momentum = terms.workers, terms.rate, terms.momentum
        self.server = WeightServer(first)
        self.staleness: Counter[int] = Counter()
        self.amounts = terms.amounts
        self.workers = [
            Worker(at, first, None, terms.rate, terms.sender(at), terms.seed) for at in range(terms.workers)
        ]

    def serve(self, pushes: int, act: Callable[[], None]) -> None:
        act()

    def learnt(self, gradients: int) -> None:
        """Nobody looks at the weights while a run goes on."""

    def _vector(self, letter: Letter) -> Vector:
        return letter.content.view(self.terms.first.dtype)


class ServerSide(Side):
    """One server, with its share of the weights, in a thread of the rank that it lives on."""

    def __init__(self, terms: Terms, post: Mailbox, number: int) -> None:
        super().__init__(terms, post, terms.first[terms.shares()[number]])
        self.number = number
        self.arrivals: list[int] = []  # what came, one after the other: `learning.order`
        self.served: list[float] = []  # seconds of each push
        self.returns: list[list[float]] = [[] for _ in range(terms.workers)]  # from a reply to its next push, by worker
        self._replied_at = [0.0] * terms.workers
        self._given = [self.server.weights] * terms.workers  # what each worker was last told
        self._since = [0.0] * terms.workers  # when each was last read
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"server {number}")

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """When all workers have left."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.algorithm.begin(self)
            self._replied_at = [time.perf_counter()] * self.count
            while self.members():
                self._take(_next(self.post.server))
            for rank in range(self.count):
                self.post.send(rank, Letter(LetterKind.BYE, self.count + self.number))
        except Exception as problem:
            self.post.worker.put(problem)  # for the rank that this server lives on: its run is over

    def _take(self, letter: Letter) -> None:
        worker = self.workers[letter.sender]
        self._since[worker.number] = time.perf_counter()
        if letter.kind is LetterKind.LEAVE:
            self.arrivals.append(left(worker.number, self.count))
            worker.present = False
            if self.members():
                self.algorithm.on_leave(self, worker)
        elif letter.kind is LetterKind.ASK:
            self.arrivals.append(asked(worker.number, self.count))
            self.reply([worker])
        else:
            self.arrivals.append(pushed(worker.number))
            self.returns[worker.number].append(self._since[worker.number] - self._replied_at[worker.number])
            read = self._given[worker.number]
            if not letter.asks:  # its next gradient has begun
                self._replied_at[worker.number] = self._since[worker.number]
            push = Push(worker, self._pushed(letter), read, letter.version, letter.clock, letter.asks)
            self.algorithm.on_push(self, push)
            self.served.append(time.perf_counter() - self._since[worker.number])

    def _pushed(self, letter: Letter) -> Vector:
        """A gradient as it was written, or weights, which are never compressed."""
        if self.compressor is None or letter.number:
            return self._vector(letter)
        return self.workers[letter.sender].sender.read(letter.content).astype(self.terms.first.dtype)

    def compute(self, worker: Worker) -> None:
        """It has what it needs, and will push when it is ready."""

    def push(self, worker: Worker, vector: Vector, weights: bool = False, asks: bool = True) -> None:
        raise NotImplementedError("workers push")

    def send(self, worker: Worker, target: int, said: Any) -> None:
        raise NotImplementedError("workers send")

    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        content = as_bytes(self.server.weights)
        for worker in workers:
            self._given[worker.number] = self.server.weights
            held = time.perf_counter() - self._since[worker.number]
            letter = Letter(
                LetterKind.REPLY, self.count + self.number, self.server.version, clock, number=held, content=content
            )
            self._replied_at[worker.number] = time.perf_counter()
            self.post.send(worker.number, letter)


class WorkerSide(Side):
    """One worker: it makes gradients at `wanted` and hands them to `take`, until it is `done`."""

    def __init__(self, terms: Terms, post: Mailbox, number: int) -> None:
        super().__init__(terms, post, terms.first)
        self.me = self.workers[number]
        self.done = False
        self.heard: list[int] = []  # what it took up, one after the other: `learning.order`
        self.travelled: Counter[tuple[str, int, int]] = Counter()  # kind, bytes, gradient: how often
        self._moments: list[float] = []  # of the beginning, and when each gradient was made
        self._held: defaultdict[int, float] = defaultdict(float)  # seconds that servers kept it waiting, by gradient
        self._replies: dict[int, Letter] = {}  # of servers, until all have replied
        self._versions = [0] * terms.servers
        self._gone = 0
        self.waited: Callable[[], Letter] = lambda: _next(post.worker)  # somebody may want to know how long

    @property
    def wanted(self) -> Vector:
        """The weights at which a gradient is to be made."""
        assert self.me.ticket is not None
        return self.me.ticket

    @property
    def kept(self) -> Vector:
        """What this worker hands over at the end, for the mean of all."""
        return self.me.weights

    def begin(self) -> None:
        self._moments.append(time.perf_counter())
        self.algorithm.begin(self)
        self.algorithm.start(self, self.me)
        self._until_wanted()

    def take(self, gradient: Vector) -> None:
        """A gradient is made; go on until the next one can begin. What came meanwhile is read first."""
        while not self.post.worker.empty():
            self._read(_next(self.post.worker))
        self.heard.append(GRADIENT)
        self._moments.append(time.perf_counter())
        self.me.ticket = None
        self.me.clock += 1
        self.algorithm.on_gradient(self, self.me, gradient)
        self._until_wanted()

    def end(self) -> None:
        """Say goodbye, and read what others send until they do."""
        for server in range(self.terms.servers):
            self.post.send(server, Letter(LetterKind.LEAVE, self.me.number))
        for other in range(self.count):
            if other != self.me.number:
                self.post.send(other, Letter(LetterKind.BYE, self.me.number))
        while self._gone < self.count - 1 + self.terms.servers:
            self._read(_next(self.post.worker))

    def paces(self) -> list[float]:
        """Seconds from one gradient to the next less what servers kept it waiting: computing, letters both ways."""
        between = enumerate(itertools.pairwise(self._moments))
        return [end - start - self._held[before] for before, (start, end) in between]

    def _until_wanted(self) -> None:
        while self.me.ticket is None and not self.done:
            self._read(self.waited())

    def _read(self, letter: Letter) -> None:
        if letter.kind is LetterKind.REPLY:
            self._replies[letter.sender - self.count] = letter
            if len(self._replies) == self.terms.servers:
                self.heard.append(replied(self.count))
                self._replied()
        elif letter.kind is LetterKind.MODEL:
            self.heard.append(sent(letter.sender))
            self.algorithm.on_message(self, self.me, letter.sender, _said(letter, self._vector(letter)))
        else:
            self._gone += 1

    def _replied(self) -> None:
        letters = [self._replies.pop(server) for server in range(self.terms.servers)]
        self._versions = [letter.version for letter in letters]
        weights = np.concatenate([self._vector(letter) for letter in letters])
        self._held[self.me.clock] += max(letter.number for letter in letters)
        self._note("pull", sum(len(letter.content) for letter in letters))
        self.me.cache_clock = min(letter.clock for letter in letters)
        self.server.weights, self.server.version = weights, max(self._versions)
        self.algorithm.on_reply(self, self.me, weights, self.server.version)

    def _note(self, kind: str, size: int) -> None:
        self.travelled[kind, size, self.me.clock] += 1

    # what an algorithm asks for

    def compute(self, worker: Worker) -> None:
        if worker.clock < self.terms.gradients:
            worker.ticket = worker.weights
        else:
            self.done = True

    def retire(self, worker: Worker) -> None:
        self.done = True

    def push(self, worker: Worker, vector: Vector, weights: bool = False, asks: bool = True) -> None:
        plain = weights or self.compressor is None
        wholes = [vector[share] for share in self.terms.shares()] if plain else [vector]
        contents = [as_bytes(part) if plain else worker.sender.write(part) for part in wholes]
        self._note("push", sum(map(len, contents)))
        for server, content in enumerate(contents):
            version = self._versions[server] + worker.version - self.server.version  # and its own since then
            head = (LetterKind.PUSH, worker.number, version, worker.clock)
            self.post.send(server, Letter(*head, number=float(plain), asks=asks, content=content))

    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        """A worker that wants the server's weights asks for them."""
        for server in range(self.terms.servers):
            self.post.send(server, Letter(LetterKind.ASK, self.me.number))

    def send(self, worker: Worker, target: int, said: Any) -> None:
        place, number, vector = _taken_apart(said)
        content = as_bytes(vector)
        self._note("exchange", len(content))
        letter = Letter(LetterKind.MODEL, worker.number, place=place, number=number, content=content)
        self.post.send(target, letter)


class Alike(WorkerSide):
    """Every worker runs the same optimizer: means go round all of them, and each does what a server would."""

    def __init__(self, terms: Terms, post: Mailbox, number: int, mean: Callable[[Vector], Vector]) -> None:
        super().__init__(terms, post, number)
        self._mean = mean

    @property
    def present(self) -> int:
        return 1  # the mean of all is one push

    @property
    def kept(self) -> Vector:
        return self.server.weights

    def push(self, worker: Worker, vector: Vector, weights: bool = False, asks: bool = True) -> None:
        self._note("all-reduce", vector.nbytes)
        push = Push(worker, self._mean(vector), worker.weights, worker.version, worker.clock)
        self.algorithm.on_push(self, push)

    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        self.algorithm.on_reply(self, self.me, self.server.weights, self.server.version)


def _next(box: queue.SimpleQueue[Letter | Exception]) -> Letter:
    found = box.get()
    if isinstance(found, Exception):
        raise found
    return found


def _taken_apart(said: Any) -> tuple[int, float, Vector]:
    """What an algorithm says is a vector, or a vector and a number in either order."""
    if not isinstance(said, tuple):
        return -1, 0.0, said
    both = cast("tuple[Any, Any]", said)
    place = 0 if isinstance(both[0], np.ndarray) else 1
    return place, float(both[1 - place]), both[place]


def _said(letter: Letter, vector: Vector) -> Any:
    if letter.place < 0:
        return vector
    return (vector, letter.number) if letter.place == 0 else (letter.number, vector)
