"""What a file of `readers/` declares: inputs that are right, how they are spoiled, and who reads them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from foretell.cli.main import answer
from fuzz.mutate import Form

TINY = "gpt:layers=2,hidden=64,heads=4,vocab=256,seq=32"
SAMPLES = Path(__file__).parent / "samples"
ROOT = Path(__file__).parents[2]

Entry: TypeAlias = Callable[[Path, bytes], None]
"""Reads an input: by its file, or by its bytes."""


@dataclass(frozen=True)
class Reader:
    """A kind of input."""

    form: Form
    samples: Callable[[], list[bytes]]
    entries: tuple[Entry, ...]
    ending: str = ".json"  # of the input's file
    beside: Callable[[Path], None] | None = None  # makes what has to lie in the folder of the input


class UnreadableAnswer(Exception):
    """An answer or an exit code that no page promises."""


def command(*words: str) -> Entry:
    """The command line itself, `{file}` and `{text}` filled in, as the shell would start it."""

    def ask(file: Path, content: bytes) -> None:
        text = content.decode("utf-8", "surrogateescape")
        sys.argv = ["foretell", *(word.replace("{file}", str(file)).replace("{text}", text) for word in words)]
        code = answer()
        if code not in (0, 1, 2):
            raise UnreadableAnswer(f"the exit code is {code}")

    return ask


def naming(text: str, ask: Entry) -> Entry:
    """What is asked of `cluster.toml`, a file that names the input."""

    def entry(file: Path, content: bytes) -> None:
        Path("cluster.toml").write_text(text.replace("{file}", file.name))
        ask(file, content)

    return entry


def files(*patterns: str) -> Callable[[], list[bytes]]:
    """The contents of files of the project."""
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def texts(*words: str) -> Callable[[], list[bytes]]:
    return lambda: [word.encode() for word in words]
