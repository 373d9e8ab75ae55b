"""Temporary folders that do not pile up: however a process ends, its folder goes with it, or with the next process.

SIGKILL leaves no time to tidy up. So a folder has a lock, which the kernel opens when its process is gone; whoever
needs a folder first removes those of the same user that nobody holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from foretell.errors import BadInput

PREFIX: Final = "foretell-"
LOCK: Final = ".held"


@contextlib.contextmanager
def scratch(word: str) -> Generator[Path]:
    """A folder for as long as this is open; `word` is what it is for."""
    try:
        _remove_abandoned(Path(tempfile.gettempdir()))
    except FileNotFoundError:  # as Python says that no folder it knows can be written
        what = "no folder for temporary files can be written"
        raise BadInput(what, where="TMPDIR, /tmp, /var/tmp", fix="TMPDIR=/a/folder/of/yours foretell ...") from None
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{word}-", ignore_cleanup_errors=True) as name:
        handle = os.open(Path(name) / f"{LOCK}.part", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hold(handle):
                (Path(name) / f"{LOCK}.part").rename(Path(name) / LOCK)  # held before anybody can see it
            yield Path(name)
        finally:
            os.close(handle)


def hold(handle: int) -> bool:
    """Lock an open file for as long as it is open here; False where another process holds it, or nobody can."""
    try:
        import fcntl  # which other systems have not

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(place: Path) -> None:
    """Remove folders of this user whose process is gone."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another process has just removed it
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return hold(handle)
    finally:
        os.close(handle)
