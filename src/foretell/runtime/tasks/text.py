# pyright: basic
"""The next byte of Python's own help pages: half a million characters of English that every Python has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch

from foretell.runtime.tasks import Batch

CHARACTERS = 128


def unfit(like: Batch, classes: int) -> str:
    tokens = like.inputs[0]
    if len(like.inputs) != 1 or tokens.dim() != 2 or tokens.is_floating_point() or like.target.shape != tokens.shape:
        return "text is sequences of tokens with the next token at every place; this model reads something else"
    return f"text has {CHARACTERS} characters, this model a vocabulary of {classes}" if classes < CHARACTERS else ""


def batches(like: Batch, seed: int) -> Iterator[Batch]:
    """Pieces of the text from random places."""
    text = torch.frombuffer(bytearray(_text()), dtype=torch.uint8).to(torch.int64)
    count, length = like.inputs[0].shape
    generator = torch.Generator().manual_seed(seed)
    places = torch.arange(length + 1)
    while True:
        starts = torch.randint(len(text) - length - 1, (count, 1), generator=generator)
        pieces = text[starts + places]
        yield Batch((pieces[:, :-1].contiguous(),), pieces[:, 1:].contiguous())


def _text() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its file has escapes that newer Pythons warn of
        from pydoc_data.topics import topics
    return "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
