# pyright: basic
"""Collectives among the ranks of this machine over sizes, and how they and full cores slow computation down.

Over loopback (gloo) on a processor, over the devices' links (NCCL) with several accelerators.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist

from foretell.calibration.case import Case, Scope
from foretell.calibration.ranks import together
from foretell.cost.samples import Exchange, Figure

SUMMARY = "collectives between ranks"

KINDS: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send")
FEW: Final = (2**10, 2**16, 2**20)
CPU: Final = tuple(2**power for power in range(8, 25, 2))
CUDA: Final = tuple(2**power for power in range(10, 31, 2))

TIMES, TIMES_QUICK = 15, 5
"""Times that a message is timed."""

BUCKET: Final = 2**22
"""Bytes that travel while a rank computes, to see how they get along."""


STREAM: Final = 2**25
"""Bytes of a copy that no cache has room for, and caches that ranks share least of all."""

WORK, UNEVEN = 2e-3, 0.2
"""Seconds that ranks compute before a message, about, and how far apart they are in that."""


def cases(scope: Scope) -> Iterator[Case]:
    for ranks in _groups(scope):
        for kind in KINDS:
            for size in scope.choose(FEW, CPU, CUDA):
                about = Exchange(kind=kind, ranks=ranks, payload=size)
                yield Case(about, lambda clock, r=ranks, k=kind, s=size: _swept(scope, r)[k, s])
    if scope.device == "cpu":
        for ranks in _groups(scope):
            for name, unit in (("crowded product", ""), ("crowded copy", ""), ("overlap", ""), ("late", "s")):
                about = Figure(name=name, unit=unit, ranks=ranks)
                yield Case(about, lambda clock, n=name, r=ranks: _beside(r)[n])


def _groups(scope: Scope) -> Iterator[int]:
    """Two ranks, four ... and all: more ranks than cores would measure the scheduler."""
    ranks = 2
    while ranks < scope.count:
        yield ranks
        ranks *= 2
    if scope.count > 1:
        yield scope.count


@cache
def _swept(scope: Scope, ranks: int) -> dict[tuple[str, int], Sequence[float]]:
    """All kinds and sizes among so many ranks: they start once."""
    backend = "nccl" if scope.device == "cuda" else "gloo"
    sizes = tuple(scope.choose(FEW, CPU, CUDA))
    return together(_sweep, ranks, scope.device, sizes, TIMES_QUICK if scope.quick else TIMES, backend=backend)


def _sweep(
    rank: int, ranks: int, device: str, sizes: Sequence[int], times: int
) -> dict[tuple[str, int], Sequence[float]]:
    found: dict[tuple[str, int], Sequence[float]] = {}
    for kind in KINDS:
        for size in sizes:
            found[kind, size] = _repeated(_message(kind, rank, ranks, size, device), times, device)
    return found


def _repeated(call: Callable[[], Any], times: int, device: str) -> list[float]:
    """Seconds of each call on this rank, all ranks starting together."""
    call()
    found: list[float] = []
    for _ in range(times):
        dist.barrier()
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found


def _message(kind: str, rank: int, ranks: int, size: int, device: str) -> Callable[[], Any]:
    """A call of one kind whose payload, what one rank contributes, has this size."""
    elements = max(1, size // 4)
    one = torch.ones(elements, device=device)
    if kind == "all-reduce":
        return lambda: dist.all_reduce(one)
    if kind == "broadcast":
        return lambda: dist.broadcast(one, 0)
    if kind == "all-gather":
        whole = torch.empty(elements * ranks, device=device)
        return lambda: dist.all_gather_into_tensor(whole, one)
    even = torch.ones(-(-elements // ranks) * ranks, device=device)
    if kind == "reduce-scatter":
        share = torch.empty(len(even) // ranks, device=device)
        return lambda: dist.reduce_scatter_tensor(share, even)
    if kind == "all-to-all":
        other = torch.empty_like(even)
        return lambda: dist.all_to_all_single(other, even)
    return lambda: _sent(one, rank)


def _sent(one: torch.Tensor, rank: int) -> None:
    """From the first rank to the second; the barrier before it starts both clocks."""
    if rank == 0:
        dist.send(one, 1)
    elif rank == 1:
        dist.recv(one, 0)


@cache
def _beside(ranks: int) -> dict[str, Sequence[float]]:
    """How much longer computation takes with so many cores busy, and how much of a message hides behind it."""
    alone = together(_work, 1)
    crowded = together(_work, ranks)
    ratios = {
        "crowded product": [crowded["product"] / alone["product"]],
        "crowded copy": [crowded["copy"] / alone["copy"]],
    }
    return {**ratios, "overlap": together(_overlap, ranks), "late": together(_late, ranks)}


def _work(rank: int, ranks: int) -> dict[str, float]:
    """Seconds of a product and of a copy while every rank does the same."""
    x = torch.randn(384, 384)
    stream = torch.randn(STREAM // 4)
    found: dict[str, float] = {}
    for name, call in (("product", lambda: x @ x), ("copy", stream.clone)):
        call()
        dist.barrier()
        found[name] = statistics.median(_own(call) for _ in range(30))
        dist.barrier()
    return found


def _own(call: Callable[[], Any]) -> float:
    """Seconds of this thread: other programs of a shared processor take none of them."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _overlap(rank: int, ranks: int) -> list[float]:
    """Share of a message's time that is hidden when a rank computes meanwhile, measured several times."""
    x, bucket = torch.randn(256, 256), torch.ones(BUCKET // 4)

    def computed(products: int) -> None:
        for _ in range(products):
            torch.mm(x, x)

    dist.all_reduce(bucket)
    message = statistics.median(_repeated(lambda: dist.all_reduce(bucket), 5, "cpu"))
    products = torch.tensor(max(1.0, message / max(_own(lambda: computed(10)) / 10, 1e-9)))
    dist.broadcast(products, 0)  # every rank computes as much
    count = int(products)
    compute = statistics.median(_repeated(lambda: computed(count), 5, "cpu"))

    def both() -> None:
        work = dist.all_reduce(bucket, async_op=True)
        computed(count)
        assert work is not None
        work.wait()

    return [
        min(1.0, max(0.0, (message + compute - seconds) / min(message, compute)))
        for seconds in _repeated(both, 7, "cpu")
    ]


def _late(rank: int, ranks: int) -> list[float]:
    """Seconds that a small message takes longer than among idle ranks when they come from computing, one after the
    other; from the last one's arrival on, by the clock that processes of a machine share."""
    x, small = torch.randn(128, 128), torch.ones(2**14)
    calm = statistics.median(_repeated(lambda: dist.all_reduce(small), 9, "cpu"))
    each = max(_own(lambda: torch.mm(x, x)), 1e-9)
    found: list[float] = []
    for turn in range(15):
        dist.barrier()
        for _ in range(int(WORK / each * (1 + UNEVEN * ((rank + turn) % ranks) / ranks))):
            torch.mm(x, x)
        arrived = time.perf_counter()
        dist.all_reduce(small)
        moments = torch.tensor([arrived, time.perf_counter()], dtype=torch.float64)
        dist.all_reduce(moments, op=dist.ReduceOp.MAX)
        last, over = moments.tolist()
        found.append(max(0.0, over - last - calm))
    return found
