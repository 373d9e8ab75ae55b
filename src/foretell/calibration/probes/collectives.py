# pyright: basic
"""Collectives among the ranks of this machine over sizes.

Over the devices' links (NCCL) with several accelerators, over loopback (gloo) on a processor. There ranks come to a
message as those of a step do: from computing, with caches full of other data and gloo's threads asleep; a loop of
messages alone is faster than that. What all ranks wait for is timed in rows, computing and a message in turn: the
message travels, the last rank is waited for, threads have to wake up and get a core, and computing is slower after all
that. What one rank only hands on (a send, a broadcast) counts from the moment on at which the last rank came to it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from foretell.calibration.case import Case, Scope
from foretell.calibration.clock import PUSHED
from foretell.calibration.ranks import groups, own_seconds, repeated, together
from foretell.cost.samples import CollectiveSample

SUMMARY = "collectives between ranks"

KINDS: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "exchange")
FEW: Final = (2**10, 2**16, 2**20)
CPU: Final = tuple(2**power for power in range(8, 25, 2))
CUDA: Final = tuple(2**power for power in range(10, 31, 2))

TIMES, TIMES_QUICK, TIMES_IN_PASSES = 15, 5, 8
"""Times that a message is timed: in one go, or in each of several passes."""

HANDED_ON: Final = ("broadcast", "send")
"""Kinds after which whoever gives goes on without those who take."""

BETWEEN: Final = 2e-3
"""Seconds that ranks of a processor compute between two messages of a row: layers of a step do so for 1 to 10 ms."""

APART: Final = 0.5e-3
"""Seconds in which ranks of a processor come to a message, one after the other."""


def cases(scope: Scope) -> Iterator[Case]:
    for ranks in groups(scope.count):
        for kind in KINDS:
            for size in scope.choose(FEW, CPU, CUDA):
                row = scope.device == "cpu" and kind not in HANDED_ON
                about = CollectiveSample(kind=kind, ranks=ranks, payload=size, worked=scope.device == "cpu", row=row)
                yield Case(about, lambda clock, r=ranks, k=kind, s=size: _swept(scope, r)[k, s])


@cache
def _swept(scope: Scope, ranks: int) -> dict[tuple[str, int], Sequence[float]]:
    """All kinds and sizes among so many ranks: they start once."""
    backend = "nccl" if scope.device == "cuda" else "gloo"
    sizes = tuple(scope.choose(FEW, CPU, CUDA))
    times = TIMES_QUICK if scope.quick else TIMES if scope.passes == 1 else TIMES_IN_PASSES
    return together(_sweep, ranks, scope.device, sizes, times, backend=backend)


def _sweep(
    rank: int, ranks: int, device: str, sizes: Sequence[int], times: int
) -> dict[tuple[str, int], Sequence[float]]:
    found: dict[tuple[str, int], Sequence[float]] = {}
    work = _RankWork() if device == "cpu" else None
    for kind in KINDS:
        for size in sizes:
            message = _message(kind, rank, ranks, size, device, work)
            if work and kind in HANDED_ON:
                found[kind, size] = _after(work, message, times, rank, ranks)
            elif work:
                found[kind, size] = _longer(work, message, times)
            else:
                found[kind, size] = repeated(message.call, times, torch.cuda.synchronize)
    return found


class _Message(NamedTuple):
    call: Callable[[], Any]
    payload: torch.Tensor
    takes_part: bool = True
    is_over: bool = True  # when this rank has its answer; one that gives goes on computing


class _RankWork:
    """What a rank of a processor does between two messages."""

    def __init__(self) -> None:
        self._other, self._x = torch.ones(PUSHED // 4), torch.randn(128, 128)
        product = torch.tensor([statistics.median(own_seconds(self._multiply) for _ in range(TIMES))])
        dist.broadcast(product, 0)  # every rank computes as much
        self._product = max(float(product), 1e-9)

    def do(self, longer: float) -> None:
        """Other data goes through the caches, and some seconds more are computed."""
        self._other.add_(1.0)
        for _ in range(int(longer / self._product)):
            self._multiply()

    def _multiply(self) -> None:
        torch.mm(self._x, self._x)


def _after(work: _RankWork, message: _Message, times: int, rank: int, ranks: int) -> list[float]:
    """Seconds of each call, from the moment on at which the last rank came to it until the last one has its answer.

    By the clock that all processes of a machine share.
    """
    message.call()
    found: list[float] = []
    for turn in range(times):
        dist.barrier()
        work.do(APART * ((rank + turn) % ranks) / ranks)
        message.payload.fill_(1.0)  # what travels was computed just now
        came = time.perf_counter()
        message.call()
        over = time.perf_counter() if message.is_over else 0.0
        moments = torch.tensor([came, over] if message.takes_part else [0.0, 0.0], dtype=torch.float64)
        dist.all_reduce(moments, op=dist.ReduceOp.MAX)
        last, over = moments.tolist()
        found.append(over - last)
    return found


def _longer(work: _RankWork, message: _Message, times: int) -> list[float]:
    """Seconds of each message of a row, in the mean of ranks that take part: until it is over, and as much longer as
    computing takes right after it than later on."""

    def compute() -> float:
        start = time.perf_counter()
        work.do(BETWEEN)
        message.payload.fill_(1.0)  # what travels was computed just now
        return time.perf_counter() - start

    def turn() -> float:
        slower = compute() - compute()
        start = time.perf_counter()
        message.call()
        return slower + time.perf_counter() - start

    message.call()
    dist.barrier()
    turn()  # straight from a barrier
    found = torch.tensor([*(turn() for _ in range(times)), 1.0]) * message.takes_part  # and how many they are
    dist.all_reduce(found)
    return (found[:-1] / found[-1]).tolist()


def _message(kind: str, rank: int, ranks: int, size: int, device: str, work: _RankWork | None) -> _Message:
    """A message of one kind whose payload, what one rank contributes, has this size."""
    elements = max(1, size // 4)
    one = torch.ones(elements, device=device)
    if kind == "all-reduce":
        return _Message(lambda: dist.all_reduce(one), one)
    if kind == "broadcast":
        return _Message(lambda: dist.broadcast(one, 0), one)
    if kind == "all-gather":
        whole = torch.empty(elements * ranks, device=device)
        return _Message(lambda: dist.all_gather_into_tensor(whole, one), one)
    if kind == "send":
        return _Message(lambda: _sent(one, rank, work), one, rank < 2, rank == 1)
    if kind == "exchange":
        other = torch.empty_like(one)
        return _Message(lambda: _exchanged(one, other, rank, ranks), one, rank ^ 1 < ranks)
    even = torch.ones(-(-elements // ranks) * ranks, device=device)
    if kind == "reduce-scatter":
        share = torch.empty(len(even) // ranks, device=device)
        return _Message(lambda: dist.reduce_scatter_tensor(share, even), even)
    taken = torch.empty_like(even)
    return _Message(lambda: dist.all_to_all_single(taken, even), even)


def _sent(one: torch.Tensor, rank: int, work: _RankWork | None) -> None:
    """From the first rank to the second; a processor's goes on computing meanwhile, as stages of a pipeline do."""
    if rank == 0:
        sent = dist.isend(one, 1)
        if work:
            work.do(BETWEEN)
        assert sent is not None
        sent.wait()
    elif rank == 1:
        dist.recv(one, 0)


def _exchanged(one: torch.Tensor, other: torch.Tensor, rank: int, ranks: int) -> None:
    """Between neighbours, pair by pair, both ways at once; what comes is waited for first, as halos are."""
    neighbour = rank ^ 1
    if neighbour < ranks:
        messages = [dist.P2POp(dist.irecv, other, neighbour), dist.P2POp(dist.isend, one, neighbour)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
