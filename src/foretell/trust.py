"""Code that may be run: what the person typed on this command line, or their program named.

A record, an anchor, a study or a configuration may name a model as `file.py:factory`. Files are data: such a text is
run only if the person wrote it too (`--trust file.py:factory`). Whoever is about to import code asks `check`: a
reader that knows nothing of all this runs nothing.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final

from foretell.errors import BadInput

VARIABLE: Final = "FORETELL_TRUSTED"
"""Where a process that foretell starts finds what its person wrote."""

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""What `python -P` is to processes that others start."""

_BETWEEN: Final = re.compile(r"[,\s]+")


def _handed_down() -> list[str]:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return []
    import msgspec

    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return []


_written: Final[set[str]] = set(_handed_down())


def trust(*words: str) -> None:
    """From now on, code that one of these words names may be run: alone, after `--option=`, or in a list."""
    for word in words:
        value = word.partition("=")[2]
        texts = (word, value, *_BETWEEN.split(word), *_BETWEEN.split(value))
        _written.update(text for text in texts if "." in text.rpartition(":")[0])  # no plan, no name of the zoo


@contextmanager
def typed(words: Iterable[str]) -> Generator[None]:
    """The same while one command line is answered."""
    before = frozenset(_written)
    trust(*words)
    try:
        yield
    finally:
        _written.intersection_update(before)


def trusted(text: str) -> bool:
    """Whether the person wrote this very text."""
    return text in _written


def check(text: str, where: str = "") -> None:
    """Refuse code that only a file names."""
    if text not in _written:
        name = text if text.isprintable() else repr(text)  # a line break could write a message of its own
        what = f"{name} is code that a file names, and nobody typed: it is not run"
        raise BadInput(what, where=where, fix=f"--trust {name}, if you know what it does")


def written() -> tuple[str, ...]:
    """All that may be run, for a process that is started elsewhere."""
    return tuple(sorted(_written))


def handed_down() -> dict[str, str]:
    """The same, as a variable of one that is started here."""
    if not _written:
        return {}
    import json

    return {VARIABLE: json.dumps(written())}


# where Python looks for what it imports


def import_folders() -> list[str]:
    """What PYTHONPATH names; an empty entry would mean the folder that a process is started in."""
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


_changing: Final = threading.Lock()
_before: Final[list[dict[str, str | None]]] = []
"""What variables were before, and an empty one for each that came later."""


@contextmanager
def importing_nothing_from_here() -> Generator[None]:
    """No Python that is started meanwhile, be it by torchrun, Ray or pip, imports from the folder that it is in."""
    with _changing:
        if not _before:
            _before.append({name: os.environ.get(name) for name in (SAFE_PATH, "PYTHONPATH")})
            os.environ |= {SAFE_PATH: "1", "PYTHONPATH": os.pathsep.join(import_folders())}
        else:
            _before.append({})  # of one inside another, or of another thread: the last to leave puts it all back
    try:
        yield
    finally:
        with _changing:
            if len(_before) > 1:
                _before.pop()
            else:
                for name, value in _before.pop().items():
                    os.environ.pop(name, None) if value is None else os.environ.update({name: value})
