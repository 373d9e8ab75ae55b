# pyright: basic
"""Letters between ranks: a head of a few numbers and a vector, from any rank to any other at any time, over gloo.

Collectives need everybody at once; here nobody knows who comes next. So each rank has a thread that takes whatever
comes, from whomever, and puts it in the box of the worker or of the server that lives on this rank.
"""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist

from foretell.learning.compressor import Wire

UNTIL_THE_END = timedelta(days=7)
"""A letter may be long in coming: whether a run stands still is for its guard to say."""


class LetterKind(IntEnum):
    """What a letter is."""

    PUSH = 0  # of a gradient, or of weights, to a server
    ASK = 1  # for a server's weights
    LEAVE = 2  # a worker has made its last gradient
    REPLY = 3  # of a server's weights
    MODEL = 4  # from worker to worker
    BYE = 5  # no more letters will come from this sender


TO_SERVERS = (LetterKind.PUSH, LetterKind.ASK, LetterKind.LEAVE)


class Letter(NamedTuple):
    """`sender` is a worker's number, or that of a server after all workers'."""

    kind: LetterKind
    sender: int
    version: int = 0
    clock: int = 0
    place: int = -1  # of the vector among what an algorithm says; -1: it is all that is said
    number: float = (
        0.0  # what else an algorithm says; of a push, whether it is written as it is; of a reply, seconds held
    )
    asks: bool = True  # of a push: whether a reply is waited for
    content: Wire = np.zeros(0, np.uint8)


class Mailbox(Protocol):
    """Carries letters; boxes are those of the rank it belongs to."""

    worker: queue.SimpleQueue[Letter | Exception]
    server: queue.SimpleQueue[Letter | Exception]

    def send(self, rank: int, letter: Letter) -> None: ...


class GlooMailbox:
    """The post of one rank of a world that has begun. All ranks make theirs together."""

    def __init__(self) -> None:
        self.group: Any = dist.new_group(backend="gloo", timeout=UNTIL_THE_END)
        self.rank = dist.get_rank()
        self.worker = queue.SimpleQueue[Letter | Exception]()
        self.server = queue.SimpleQueue[Letter | Exception]()
        self._sending = threading.Lock()  # a head and its content belong together
        threading.Thread(target=self._listen, daemon=True, name="post").start()

    def send(self, rank: int, letter: Letter) -> None:
        if rank == self.rank:
            self._deliver(letter)
            return
        head = torch.tensor([*map(float, letter[:-1]), float(len(letter.content))], dtype=torch.float64)
        with self._sending:
            dist.send(head, rank, group=self.group)
            if len(letter.content):
                dist.send(torch.from_numpy(letter.content), rank, group=self.group, tag=1)

    def _deliver(self, letter: Letter) -> None:
        (self.server if letter.kind in TO_SERVERS else self.worker).put(letter)

    def _listen(self) -> None:
        """For as long as the process lives. What goes wrong here is told to those who wait for letters."""
        try:
            while True:
                self._deliver(self._next())
        except Exception as problem:
            self.worker.put(problem)
            self.server.put(problem)

    def _next(self) -> Letter:
        head = torch.empty(len(Letter._fields), dtype=torch.float64)
        source = dist.recv(head, group=self.group)
        *head_numbers, number, asks, length = head.tolist()
        kind, sender, version, clock, place = map(int, head_numbers)
        content = torch.empty(int(length), dtype=torch.uint8)
        if length:
            dist.recv(content, source, group=self.group, tag=1)
        return Letter(LetterKind(kind), sender, version, clock, place, number, bool(asks), content.numpy())
