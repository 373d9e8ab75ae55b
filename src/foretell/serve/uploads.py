"""Models that were handed in: a folder of its own for each server, files by the hash of what is in them.

A file is read, never run: a config.json through the architectures that are known here, a graph that foretell wrote,
or a layer file. The name in a question is a prefix and a hash, so that it cannot name any other file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
from pathlib import Path
from typing import Final

from foretell.errors import BadInput

PREFIX: Final = "uploaded:"
FOLDER: Final = "FORETELL_SERVE_UPLOADS"
"""The variable in which workers find the folder."""

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of the largest file."""

MOST: Final = 64
"""Files that are kept; of more, the oldest go."""

GRAPH: Final = ".graph.json"
SUFFIXES: Final = (GRAPH, ".json", ".net")
"""Of files by what is in them: a graph that foretell wrote, a configuration or a record, layers."""

_FORM: Final = re.compile(re.escape(PREFIX) + r"([0-9a-f]{24})")


_ONE_AT_A_TIME: Final = threading.Lock()
"""Else one that is old in somebody's list is taken away just after it came again."""


def keep(content: bytes, folder: Path) -> str:
    """Write a file; what questions call it."""
    digest = hashlib.sha256(content).hexdigest()[:24]
    file = folder / f"{digest}{_suffix(content)}"
    written = folder / f"new-{secrets.token_hex(8)}"
    written.write_bytes(content)
    with _ONE_AT_A_TIME:
        written.replace(file)  # so that nobody reads half of it
        for one in sorted(folder.glob("*.*"), key=_age)[:-MOST]:
            one.unlink(missing_ok=True)
    return f"{PREFIX}{digest}"


def _age(file: Path) -> int:
    """When it was written; others may take it away meanwhile."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _suffix(content: bytes) -> str:
    if content.lstrip()[:1] not in (b"{", b"["):
        return ".net"
    return GRAPH if b'"blocks"' in content else ".json"


def path(text: str) -> Path:
    """The file that a question names."""
    form = _FORM.fullmatch(text)
    digest = form[1] if form else "none"
    for suffix in SUFFIXES:
        file = Path(os.environ.get(FOLDER, "")) / f"{digest}{suffix}"
        if file.is_file():
            return file
    raise BadInput("this server does not have that file", where="model", fix="hand the model in again")


def named(text: str) -> str:
    """What a model that was handed in is called in answers: short, and without any path."""
    return f"model {text.removeprefix(PREFIX)[:8]}"
