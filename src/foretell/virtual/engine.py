"""The clock: a heap of events, played in the order of their times; those of one time in the order they were made."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventLoop:
    """Plays events until there are none left or somebody says stop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.played = 0
        self.stopped = False
        self._made = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: float, act: Callable[..., None], *given: Any) -> None:
        """Have something done at a time that is not past."""
        self._made += 1
        heapq.heappush(self._heap, (time, self._made, act, given))

    def run(self, until: float = float("inf"), most: float = float("inf")) -> None:
        """Play all events up to a time, `most` of them at most."""
        heap, pop = self._heap, heapq.heappop
        while heap and not self.stopped and self.played < most:
            time, made, act, given = pop(heap)
            if time > until:  # not now; a later run goes on with it
                heapq.heappush(heap, (time, made, act, given))
                return
            self.now = time
            self.played += 1
            act(*given)
