"""Streams of one rank: what runs beside its computation, and where ranks wait for each other."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Busy(NamedTuple):
    """A stretch of time in which a rank works, and how fast messages of each level go beside it."""

    start: float
    end: float
    rates: Mapping[str, float]  # level to rate, 1 where nothing is in the way


@dataclass
class WeightMessage:
    """One message for weights: when it may start, and when it ran."""

    name: str
    stream: str
    level: str
    seconds: float  # where nothing runs beside it
    issued: float
    bytes: float = 0.0
    start: float = 0.0
    end: float = 0.0


@dataclass
class Behind:
    """Messages for weights of one rank, one after the other, behind its computation.

    A message is worked off no earlier than somebody waits for it. By then all work that it can run
    beside is known; what comes after that waits, and leaves it the whole link.
    """

    free: float = 0.0
    busy: list[Busy] = field(default_factory=list[Busy])
    queue: deque[WeightMessage] = field(default_factory=deque[WeightMessage])
    _at: int = 0

    def issue(self, message: WeightMessage) -> None:
        self.queue.append(message)

    def until(self, wanted: WeightMessage | None = None) -> list[WeightMessage]:
        """Work off the queue up to and with a message, or all of it; what ran."""
        ran: list[WeightMessage] = []
        while self.queue and (wanted is None or not wanted.end):
            message = self.queue.popleft()
            message.start = max(self.free, message.issued)
            message.end = self.free = self._end(message)
            ran.append(message)
        return ran

    def _end(self, message: WeightMessage) -> float:
        now, left = message.start, message.seconds
        while True:
            while self._at < len(self.busy) and self.busy[self._at].end <= now:
                self._at += 1
            if self._at == len(self.busy):
                return now + left
            start, end, rates = self.busy[self._at]
            if now < start:  # idle until then
                rate, end = 1.0, start
            else:
                rate = rates.get(message.level, rates[""])
            if left <= (end - now) * rate:
                return now + left / rate if left else now
            left -= (end - now) * rate
            now = end


Process: TypeAlias = Generator[Hashable, None, None]
"""A rank at work: it names what it waits for, and goes on when that is there."""


class Board:
    """Where ranks say when something is there, and others wait for it."""

    def __init__(self) -> None:
        self._there: dict[Hashable, float] = {}
        self._meetings: dict[Hashable, list[float]] = defaultdict(list)
        self._waiting: dict[Hashable, list[Process]] = defaultdict(list)
        self._ready: deque[Process] = deque()

    def post(self, key: Hashable, when: float) -> None:
        self._there[key] = when
        self._ready.extend(self._waiting.pop(key, ()))

    def meet(self, key: Hashable, members: int, when: float) -> None:
        """Somebody has come to a meeting; it begins when all have."""
        self._meetings[key].append(when)
        if len(self._meetings[key]) == members:
            self.post(key, max(self._meetings[key]))

    def when(self, key: Hashable) -> float:
        return self._there[key]

    def run(self, processes: list[Process]) -> None:
        """Let all ranks work to their end."""
        self._ready.extend(processes)
        while self._ready:
            process = self._ready.popleft()
            for key in process:
                if key not in self._there:
                    self._waiting[key].append(process)
                    break
        if self._waiting:
            raise ValueError(f"ranks wait in vain for {sorted(map(str, self._waiting))[:3]}")
