"""The switch, compiled on this machine when it is first wanted, and kept; run only if it is still what was compiled."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from foretell.errors import BadInput
from foretell.files import PRIVATE, only_ours, write_whole
from foretell.records.home import cache_home

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


@functools.cache
def program() -> Path:
    """The switch. It is compiled once: the file is named after all that it is made of and for."""
    made_of = SOURCE.read_bytes() + " ".join((*OPTIONS, platform.machine())).encode()
    target = _own_folder() / f"switch-{hashlib.sha256(made_of).hexdigest()[:16]}"
    if not _as_compiled(target):
        _compile(target)
    return target


def _own_folder() -> Path:
    """Where the switch is kept; where somebody else could put another one there, a folder for this process alone."""
    folder = cache_home()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)
    if only_ours(folder) and os.access(folder, os.W_OK):
        return folder
    own = tempfile.mkdtemp(prefix="foretell-switch-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _digest_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _as_compiled(target: Path) -> bool:
    """Whether a file is what was compiled here: ours, nobody else's to change, and not a byte of it changed."""
    if not (only_ours(target) and only_ours(_digest_of(target))):
        return False
    return hashlib.sha256(target.read_bytes()).hexdigest() == _digest_of(target).read_text().strip()


def _compile(target: Path) -> None:
    command = found()
    if not command:
        raise BadInput("no C compiler", where="foretell lab", fix="apt install gcc, or CC=/path/to/compiler")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "switch"
        ran = subprocess.run([*command, *OPTIONS, "-o", str(made), str(SOURCE)], capture_output=True, text=True)
        if ran.returncode:
            last = "\n".join(ran.stderr.strip().splitlines()[-6:])
            raise BadInput(f"the C compiler does not compile the switch:\n{last}", where=str(SOURCE), fix="CC=gcc")
        content = made.read_bytes()
    for old in (target, _digest_of(target)):  # a link would be followed
        old.unlink(missing_ok=True)
    write_whole(target, content, 0o700)
    write_whole(_digest_of(target), hashlib.sha256(content).hexdigest().encode(), PRIVATE)
