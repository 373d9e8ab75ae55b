# pyright: basic
"""How cores that are busy at once slow each other down, and how well messages run beside computation.

The first rank is timed while others wait at a barrier and while all do the same, turn by turn, in seconds of its own
thread: what else the machine runs takes none of them, and how it slows a core down is in both. Longer stretches of
computing tell how much longer they take by the wall's clock, which is what holds a thread up, and how much longer on
the slowest core than on one in the mean.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from foretell.calibration.case import Case, Scope
from foretell.calibration.ranks import groups, own_seconds, repeated, together
from foretell.cost.core_contention import HELD_UP as HELD_UP_NAME
from foretell.cost.core_contention import LAST as LAST_NAME
from foretell.cost.samples import FigureSample

SUMMARY = "cores that are busy at once"

COPIED: Final = (2**17, 2**20, 2**22, 2**25)
"""Bytes of copies: cores share no cache that has room for the first, and none has room for the last."""

PRODUCT: Final = 384
"""Rows and columns of a product that a core's own cache has room for."""

TURNS, CALLS = 7, 5
"""Turns alone and together, and calls in each."""

STRETCH: Final = 0.03
"""Seconds of computing by which a thread sees how often it is held up."""

BUCKET: Final = 2**22
"""Bytes that travel while a rank computes, to see how they get along."""


class BusyCores(NamedTuple):
    """What every core does at once."""

    name: str
    bytes: int = 0


KINDS: Final = (BusyCores("crowded product"), *(BusyCores("crowded copy", size) for size in COPIED))

ALONE, HELD_UP, LAST = BusyCores("held up alone"), BusyCores(HELD_UP_NAME), BusyCores(LAST_NAME)
"""What longer stretches tell: of one rank, and of all."""


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device != "cpu":
        return
    for ranks in groups(scope.count):
        for kind in KINDS:
            about = FigureSample(name=kind.name, ranks=ranks, bytes=kind.bytes)
            yield Case(about, lambda clock, r=ranks, k=kind: _crowded(scope, r)[k])
        for kind in (HELD_UP, LAST):
            yield Case(FigureSample(name=kind.name, ranks=ranks), lambda clock, r=ranks, k=kind: _crowded(scope, r)[k])
        yield Case(FigureSample(name="overlap", ranks=ranks), lambda clock, r=ranks: together(_overlap, r))
    if scope.count > 1:
        yield Case(FigureSample(name=HELD_UP.name, ranks=1), lambda clock: _crowded(scope, 2)[ALONE])


@cache
def _crowded(scope: Scope, ranks: int) -> dict[BusyCores, Sequence[float]]:
    """All kinds among so many ranks: they start once."""
    return together(_in_turn, ranks)


def _in_turn(rank: int, ranks: int) -> dict[BusyCores, Sequence[float]]:
    """How many times as long the first rank takes while all others do the same as while they wait."""
    found: dict[BusyCores, list[float]] = defaultdict(list)
    for kind in KINDS:
        call = _call(kind)
        call()
        for _ in range(TURNS):
            dist.barrier()
            alone = _seconds(call) if rank == 0 else 1.0
            dist.barrier()
            found[kind].append(_seconds(call) / alone)
    stretch = _stretch(_call(KINDS[0]))
    for _ in range(TURNS):
        dist.barrier()
        found[ALONE].append(stretch().held_up if rank == 0 else 1.0)
        dist.barrier()
        spent = stretch()
        found[HELD_UP].append(spent.held_up)
        found[LAST].append(_of_the_last(spent.own, ranks))
    return dict(found)


def _call(kind: BusyCores) -> Callable[[], Any]:
    if not kind.bytes:
        x = torch.randn(PRODUCT, PRODUCT)
        return lambda: x @ x
    source, target = torch.randn(kind.bytes // 4), torch.empty(kind.bytes // 4)
    return lambda: target.copy_(source)


def _seconds(call: Callable[[], Any]) -> float:
    return max(1e-9, statistics.median(own_seconds(call) for _ in range(CALLS)))


class ThreadSeconds(NamedTuple):
    """Seconds of this thread, and those by the wall's clock over them."""

    own: float
    held_up: float


def _stretch(call: Callable[[], Any]) -> Callable[[], ThreadSeconds]:
    """Some time of computing, as much on every rank."""
    count = torch.tensor(max(1.0, STRETCH / _seconds(call)))
    dist.broadcast(count, 0)
    times = int(count)

    def stretch() -> ThreadSeconds:
        start = time.perf_counter()
        own = max(own_seconds(lambda: [call() for _ in range(times)]), 1e-9)
        return ThreadSeconds(own, (time.perf_counter() - start) / own)

    return stretch


def _of_the_last(own: float, ranks: int) -> float:
    """The most that a rank took over what ranks take in the mean."""
    every = [torch.zeros(1, dtype=torch.float64) for _ in range(ranks)]
    dist.all_gather(every, torch.tensor([own], dtype=torch.float64))
    seconds = [float(one) for one in every]
    return max(seconds) / statistics.fmean(seconds)


def _overlap(rank: int, ranks: int) -> list[float]:
    """Share of a message's time that is hidden when a rank computes meanwhile, measured several times."""
    x, bucket = torch.randn(256, 256), torch.ones(BUCKET // 4)

    def computed(products: int) -> None:
        for _ in range(products):
            torch.mm(x, x)

    dist.all_reduce(bucket)
    message = statistics.median(repeated(lambda: dist.all_reduce(bucket), 5))
    products = torch.tensor(max(1.0, message / max(own_seconds(lambda: computed(10)) / 10, 1e-9)))
    dist.broadcast(products, 0)  # every rank computes as much
    count = int(products)
    compute = statistics.median(repeated(lambda: computed(count), 5))

    def both() -> None:
        work = dist.all_reduce(bucket, async_op=True)
        computed(count)
        assert work is not None
        work.wait()

    return [min(1.0, max(0.0, (message + compute - seconds) / min(message, compute))) for seconds in repeated(both, 7)]
