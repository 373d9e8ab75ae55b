# pyright: basic
"""The next letter of epigrams and jokes: two million letters of English, Debian's packages of `fortune`."""

from __future__ import annotations

from pathlib import Path

import torch

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Task
from foretell.runtime.tasks._tokens import CHARACTERS, Tokens, letters

FOLDER = Path("/usr/share/games/fortunes")


def task(given: str) -> Task:
    """`fortunes:FOLDER` for files that lie somewhere else."""
    folder = Path(given) if given else FOLDER
    files = sorted(path for path in folder.glob("*") if path.is_file() and not path.suffix) if folder.is_dir() else []
    if not files:
        fix = "apt install fortunes, or --task fortunes:FOLDER"
        raise MissingExtra(f"no epigrams are in {folder}", where="--task", fix=fix)
    return Tokens("fortunes", CHARACTERS, lambda: _read(files))


def _read(files: list[Path]) -> torch.Tensor:
    return letters(b"\n".join(path.read_bytes() for path in files))
