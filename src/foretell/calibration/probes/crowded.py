# pyright: basic
"""How cores that are busy at once slow each other down, and how well messages run beside computation.

The first rank is timed while others wait at a barrier and while all do the same, turn by turn, in seconds of its own
thread: what else the machine runs takes none of them, and how it slows a core down is in both.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from foretell.calibration.case import Case, Scope
from foretell.calibration.ranks import groups, own_seconds, repeated, together
from foretell.cost.samples import Figure

SUMMARY = "cores that are busy at once"

COPIED: Final = (2**17, 2**20, 2**22, 2**25)
"""Bytes of copies: cores share no cache that has room for the first, and none has room for the last."""

PRODUCT: Final = 384
"""Rows and columns of a product that a core's own cache has room for."""

TURNS, CALLS = 7, 5
"""Turns alone and together, and calls in each."""

BUCKET: Final = 2**22
"""Bytes that travel while a rank computes, to see how they get along."""


class Busy(NamedTuple):
    """What every core does at once."""

    name: str
    bytes: int = 0


KINDS: Final = (Busy("crowded product"), *(Busy("crowded copy", size) for size in COPIED))


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device != "cpu":
        return
    for ranks in groups(scope.count):
        for kind in KINDS:
            about = Figure(name=kind.name, ranks=ranks, bytes=kind.bytes)
            yield Case(about, lambda clock, r=ranks, k=kind: _crowded(r)[k])
        yield Case(Figure(name="overlap", ranks=ranks), lambda clock, r=ranks: together(_overlap, r))


@cache
def _crowded(ranks: int) -> dict[Busy, Sequence[float]]:
    """All kinds among so many ranks: they start once."""
    return together(_in_turn, ranks)


def _in_turn(rank: int, ranks: int) -> dict[Busy, Sequence[float]]:
    """How many times as long the first rank takes while all others do the same as while they wait."""
    found: dict[Busy, list[float]] = defaultdict(list)
    for kind in KINDS:
        call = _call(kind)
        call()
        for _ in range(TURNS):
            dist.barrier()
            alone = _seconds(call) if rank == 0 else 1.0
            dist.barrier()
            found[kind].append(_seconds(call) / alone)
    return dict(found)


def _call(kind: Busy) -> Callable[[], Any]:
    if not kind.bytes:
        x = torch.randn(PRODUCT, PRODUCT)
        return lambda: x @ x
    source, target = torch.randn(kind.bytes // 4), torch.empty(kind.bytes // 4)
    return lambda: target.copy_(source)


def _seconds(call: Callable[[], Any]) -> float:
    return max(1e-9, statistics.median(own_seconds(call) for _ in range(CALLS)))


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
