"""What the engine remembers between questions, bounded together.

Programs of ranks, their prices and the graphs they are about are kept by the functions that make them: a slider that
moves, a search and a sweep ask for most of them again. Each cache has its number of entries; but an entry of a large
model is a thousand times one of a small model, so a number of entries bounds no bytes. All of them together therefore
have a budget, and are emptied when it is spent: with it, what is asked again is made again, once in thousands of
questions.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

BLOCK: Final = 70
"""Bytes of a block of Python's allocator, on average over what the engine keeps."""

BUDGET: Final = 175_000_000 // BLOCK
"""Blocks by which caches may grow: 175 MB."""


class _Cached(Protocol):
    def cache_clear(self) -> None: ...


Cached = TypeVar("Cached", bound=_Cached)

_emptied: Final[list[Callable[[], Any]]] = []
_limit: Final[list[int]] = []
_budget: Final = [BUDGET]


def forgettable(cached: Cached) -> Cached:
    """A function with a cache (`functools.lru_cache`) that is emptied when the budget is spent."""
    emptied_when_full(cached.cache_clear)
    return cached


def emptied_when_full(empty: Callable[[], Any]) -> None:
    """The same for a cache that is no function's."""
    _emptied.append(empty)


def allow(size: int) -> None:
    """Bytes by which caches may grow from here, where it was not said before: for a process that has one task."""
    if _budget[0] != size // BLOCK:
        _budget[0] = size // BLOCK
        _limit[:] = [sys.getallocatedblocks() + _budget[0]]


def make_room(rows: int = 0) -> None:
    """Empty the caches if they have grown by the budget; for whoever adds something large.

    `rows` are bytes of long lists and arrays in it, which Python's allocator does not count. The budget begins with
    what is left after the last time: a search that needs more for itself is not slowed down by caches that are always
    empty.
    """
    now = sys.getallocatedblocks()
    if not _limit:
        _limit.append(now + _budget[0])
    _limit[0] -= rows // BLOCK
    if now > _limit[0]:
        for empty in _emptied:
            empty()
        gc.collect()  # programs refer to themselves
        _limit[0] = sys.getallocatedblocks() + _budget[0]
