# pyright: basic
"""The next letter of Python's own help pages: half a million letters of English that every Python has."""

from __future__ import annotations

import warnings

import torch

from foretell.runtime.tasks import Task, nothing_given
from foretell.runtime.tasks._tokens import CHARACTERS, Tokens, letters


def task(given: str) -> Task:
    nothing_given("text", given)
    return Tokens("text", CHARACTERS, _read)


def _read() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its file has escapes that newer Pythons warn of
        from pydoc_data.topics import topics
    return letters("\n".join(topics[name] for name in sorted(topics)).encode())
