# pyright: basic
"""The next letter of Python's standard library: some ten million letters of code that every Python has."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Task, nothing_given
from foretell.runtime.tasks._tokens import CHARACTERS, Tokens, letters


def task(given: str) -> Task:
    nothing_given("code", given)
    return Tokens("code", CHARACTERS, _read)


def _read() -> torch.Tensor:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        path for path in folder.rglob("*.py") if "site-packages" not in path.parts and "test" not in path.parts
    )
    if not files:
        raise MissingExtra("this Python has no sources of its standard library", where=str(folder), fix="--task text")
    return letters(b"\n".join(path.read_bytes() for path in files))
