# pyright: basic
"""What the stages of a pipeline say to each other, where the order of passes is ours and not torch's.

Two neighbours send each other values and gradients, perhaps of several stages. NCCL takes what two ranks say in one
group in the order in which each asks for it, and the two need not agree: so each stream, which has messages of one kind
in one direction, has a group of its own. Inside a stream messages come in the order in which they were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from foretell.runtime.subject import Subject


class Like(NamedTuple):
    """The shape and type of a value that crosses from one stage to the next, and whether a gradient comes back."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool = False

    def empty(self, device: torch.device) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)


def like(value: torch.Tensor) -> Like:
    return Like(tuple(value.shape), value.dtype, value.requires_grad)


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
LETTER = Like((64,), torch.int64)
"""Before the first values that cross goes what they are like."""


def _written(values: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    numbers = [len(values)]
    for value in values:
        numbers += [DTYPES.index(value.dtype), value.requires_grad, value.dim(), *value.shape]
    return torch.tensor([*numbers, *[0] * (LETTER.shape[0] - len(numbers))], dtype=LETTER.dtype, device=device)


def _read(letter: torch.Tensor) -> list[Like]:
    count, *numbers = letter.tolist()
    found: list[Like] = []
    for _ in range(count):
        kind, trained, dims, *numbers = numbers
        found.append(Like(tuple(numbers[:dims]), DTYPES[kind], bool(trained)))
        numbers = numbers[dims:]
    return found


SENDING: deque[tuple[Any, torch.Tensor]] = deque()
"""What is on its way. It outlives a line: when a rank has done all of its work, others still read its last ones."""


class Stream:
    """Messages of one kind in one direction. All ranks make all streams, in one order."""

    def __init__(self, subject: Subject) -> None:
        self.group, self.device = subject.mesh.anew("pp"), subject.device
        self.known: dict[int, list[Like]] = {}  # what comes from a rank, or goes to it

    def hand_on(self, values: Sequence[torch.Tensor], to: int) -> None:
        """Values of a forward pass. The first time a letter says what they are like."""
        if to not in self.known:
            self.known[to] = [like(value) for value in values]
            self.send([_written(values, self.device)], to)
        self.send([value.detach() for value in values], to)

    def crossing(self, of: int, likes: Sequence[Like] = ()) -> list[torch.Tensor]:
        """What the rank before made of a micro-batch, ready to be gone through; `likes`: where it cannot say so."""
        likes = likes or self._told(of)
        found = self.received(likes, of)
        for value, said in zip(found, likes, strict=True):
            value.requires_grad_(said.trained)
        return found

    def _told(self, of: int) -> list[Like]:
        """What the values of a rank are like, as its letter says."""
        if of not in self.known:
            (letter,) = self.received([LETTER], of)
            self.known[of] = _read(letter)
        return self.known[of]

    def send(self, values: Iterable[torch.Tensor], to: int) -> None:
        """Without waiting; a value is kept until it is gone."""
        for tag, value in enumerate(values):
            whole = value.contiguous()
            SENDING.append((dist.isend(whole, group=self.group, group_dst=to, tag=tag), whole))

    def received(self, likes: Sequence[Like], of: int) -> list[torch.Tensor]:
        found = [one.empty(self.device) for one in likes]
        works = [dist.irecv(one, group=self.group, group_src=of, tag=tag) for tag, one in enumerate(found)]
        for work in works:
            assert work is not None
            work.wait()
        return found


def let_go(most: int = 0) -> None:
    """Wait until no more than so many messages are on their way, the oldest first."""
    while len(SENDING) > most:
        SENDING.popleft()[0].wait()


def several(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)


def gradient(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad
