"""What a person attaches to a report of a crash: enough to see the fault, and nothing of the environment."""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from foretell.files import shown
from foretell.secrets import hidden
from foretell.version import __version__

TOKEN: Final = "--token"
BLANK: Final = "..."


def write_report(problem: BaseException, arguments: Sequence[str]) -> str:
    """Write the file and give its path. Only its owner can read it (0600): it has their command line and paths."""
    handle, path = tempfile.mkstemp(prefix="foretell-crash-", suffix=".txt")
    with os.fdopen(handle, "wb") as file:
        file.write(report(problem, arguments).encode("utf-8", "backslashreplace"))
    return path


def report(problem: BaseException, arguments: Sequence[str]) -> str:
    """Versions, the command, and the traceback: its lines of source, no values of variables."""
    facts = {
        "foretell": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "command": shlex.join(shown(argument) for argument in _without_token(arguments)),
        "folder": shown(_folder()),
    }
    head = "".join(f"{name:<10}{text}\n" for name, text in facts.items())
    return hidden(f"{head}\n{''.join(traceback.format_exception(problem))}")


def _without_token(arguments: Sequence[str]) -> list[str]:
    """A command line without the word that opens a page to its guests."""
    kept: list[str] = []
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if kept and kept[-1] == TOKEN:
            kept.append(BLANK)
        else:
            kept.append(f"{TOKEN}={BLANK}" if option == TOKEN and equals else argument)
    return kept


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "(gone)"
