"""The switch, compiled on this machine when it is first wanted, and kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from foretell.errors import BadInput

SOURCE = Path(__file__).with_name("switch.c")
OPTIONS = ("-O2", "-std=gnu11", "-pthread")


def found() -> list[str]:
    """The command of a C compiler; empty where there is none."""
    named = os.environ.get("CC")
    if named:
        words = shlex.split(named)
        return words if shutil.which(words[0]) else []
    paths = [path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    return paths[:1]


def program() -> Path:
    """The switch. It is compiled once: the file is named after all that it is made of and for."""
    made_of = SOURCE.read_bytes() + " ".join((*OPTIONS, platform.machine())).encode()
    target = _cache() / f"switch-{hashlib.sha256(made_of).hexdigest()[:16]}"
    if not target.exists():
        _compile(target)
    return target


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretell"


def _compile(target: Path) -> None:
    command = found()
    if not command:
        raise BadInput("no C compiler", where="foretell lab", fix="apt install gcc, or CC=/path/to/compiler")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:  # whole or not at all, however many compile at once
        made = Path(folder) / "switch"
        ran = subprocess.run([*command, *OPTIONS, "-o", str(made), str(SOURCE)], capture_output=True, text=True)
        if ran.returncode:
            last = "\n".join(ran.stderr.strip().splitlines()[-6:])
            raise BadInput(f"{command[0]} does not compile the switch:\n{last}", where=str(SOURCE), fix="CC=gcc")
        made.rename(target)
