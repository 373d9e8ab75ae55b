# pyright: basic
"""Sequences of tokens with the next token at every place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from foretell.errors import BadInput
from foretell.runtime.tasks import Batch

HELD_OUT = 0.1
"""Share of a text, its end, that nobody trains on."""

MOST = 256
"""Pieces of the held-out part that are tried."""

CHARACTERS = 128
"""Tokens of a text that is read letter by letter."""


@dataclass(frozen=True)
class Tokens:
    """A task of one long row of tokens. It is read when the first batch is asked for."""

    name: str
    vocabulary: int
    read: Callable[[], torch.Tensor]

    @functools.cached_property
    def _text(self) -> torch.Tensor:
        return self.read()

    def unfit(self, like: Batch, classes: int) -> str:
        tokens = like.inputs[0]
        if (
            len(like.inputs) != 1
            or tokens.dim() != 2
            or tokens.is_floating_point()
            or like.target.shape != tokens.shape
        ):
            return f"{self.name} is sequences with the next token at every place; this model reads something else"
        if 0 < classes < self.vocabulary:
            return f"{self.name} has {self.vocabulary} tokens, this model a vocabulary of {classes}"
        return ""

    def samples(self, like: Batch) -> int:
        return len(self._part(like)[0]) // like.inputs[0].shape[1]

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        """Pieces from random places."""
        text, length = self._part(like)[0], like.inputs[0].shape[1]
        generator = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(text) - length, (len(like.target), 1), generator=generator)
            yield _pieces(text, starts, length)

    def held_out(self, like: Batch) -> Iterator[Batch]:
        """Pieces side by side."""
        text, length = self._part(like)[1], like.inputs[0].shape[1]
        starts = torch.arange(0, len(text) - length, length)[:MOST].unsqueeze(1)
        for some in starts.split(len(like.target)):
            yield _pieces(text, some, length)

    def _part(self, like: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        text, length = self._text, like.inputs[0].shape[1]
        kept = round(len(text) * (1 - HELD_OUT))
        if min(kept, len(text) - kept) <= length + 1:
            what = f"{self.name} has {len(text):,} tokens: too few for sequences of {length}"
            raise BadInput(what, where="--task", fix="a longer text, or a smaller --seq")
        return text[:kept], text[kept:]


def _pieces(text: torch.Tensor, starts: torch.Tensor, length: int) -> Batch:
    pieces = text[starts + torch.arange(length + 1)].to(torch.int64)
    return Batch((pieces[:, :-1].contiguous(),), pieces[:, 1:].contiguous())


def letters(text: bytes) -> torch.Tensor:
    """A text letter by letter; what is no ASCII is a question mark."""
    return torch.frombuffer(bytearray(text.decode("utf-8", "replace").encode("ascii", "replace")), dtype=torch.uint8)
