"""Files of other people, and ours: read only if they are plain and small enough, written whole or not at all.

A FIFO would hang the reader, a huge file would fill memory, a crash or a full disk would leave half a file behind: no
reader or writer of foretell has to think of these again.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from foretell.errors import BadInput

LARGEST: Final = 256 << 20
"""Bytes of a file that is read at once; a Perfetto trace of a long step is some 100 MB."""

PRIVATE: Final = 0o600
"""What foretell keeps by itself (records, uploads, caches) is its owner's alone; what a person names follows umask."""

PRIVATE_FOLDER: Final = 0o700
"""The folders that it makes for them."""

Content = TypeVar("Content")


def read_bytes(path: Path, kind: str, most: int = LARGEST, fix: str = "") -> bytes:
    """The content of a plain file; `kind` is what it should be ("record"), for the message."""
    with _opened(path, kind, fix) as file:
        length = os.fstat(file.fileno()).st_size
        content = b"" if length > most else file.read(most + 1)
    if length > most or len(content) > most:
        size = max(length, len(content))
        what = f"cannot read the {kind}: {size:,} bytes, where at most {most:,} are read"
        raise BadInput(what, where=shown(path), fix=fix)
    return content


def read_head(path: Path, kind: str, count: int, fix: str = "") -> bytes:
    """The first bytes of a plain file, however long it is: they tell its form."""
    with _opened(path, kind, fix) as file:
        return file.read(count)


def _opened(path: Path, kind: str, fix: str) -> BinaryIO:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise BadInput(f"cannot read the {kind}: {why}", where=shown(path), fix=fix) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"cannot read the {kind}: not a plain file", where=shown(path), fix=fix)
    return os.fdopen(handle, "rb")


def read_text(path: Path, kind: str, most: int = LARGEST, fix: str = "") -> str:
    """The same as text; what is not UTF-8 is said with its place."""
    content = read_bytes(path, kind, most, fix)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        what = f"cannot read the {kind}: byte {problem.start:,} (line {line:,}) is not UTF-8"
        raise BadInput(what, where=shown(path), fix=fix) from None


def decode_json(text: bytes | str, form: type[Content], kind: str, where: Path | str, fix: str = "") -> Content:
    """JSON as a type with its bounds; what is wrong is said with its place in the text: `$.samples[3].ranks`."""
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:  # a ValidationError is a DecodeError
        raise BadInput(f"not a {kind}: {problem}", where=shown(where), fix=fix) from None


def read_json(path: Path, form: type[Content], kind: str, most: int = LARGEST, fix: str = "") -> Content:
    """A file of JSON as a type with its bounds."""
    return decode_json(read_bytes(path, kind, most, fix), form, kind, path, fix)


def write_whole(
    path: Path,
    content: bytes | memoryview,
    mode: int | None = None,
    publish: Callable[[Path, Path], object] | None = None,
) -> None:
    """Write a file beside its place and give it its name when it is finished and on the disk.

    `mode` is for what foretell keeps; without it the umask decides, or whatever the file that is replaced has.
    `publish(temporary, target)` gives the name; without it a file that is there is replaced. Raises OSError.
    """
    target = _target(path)
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing to rename onto
        target.write_bytes(content)
        return
    temporary = ""
    try:
        if mode == PRIVATE:
            own_folder(target.parent)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode if mode is not None else _usual_mode(target))
        (publish or Path.replace)(Path(temporary), target)
        _settle(target.parent)
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def append_lines(path: Path, *lines: bytes) -> None:
    """Add lines to a file, on the disk: one write, so that those of several processes do not mix. What a crash cut off
    stays a line of its own, which readers pass over. Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        size = os.fstat(handle).st_size
        torn = size and os.pread(handle, 1, size - 1) != b"\n"
        content = b"\n" * bool(torn) + b"".join(line + b"\n" for line in lines)
        if os.write(handle, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)


def save(path: Path, content: bytes, kind: str, fix: str = "another place for it") -> None:
    """Write a file that a person named: whole, or a message. No folder is made for it: that is a slip of the pen."""
    try:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {shown(path.parent)}")
        write_whole(path, content)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        what = f"cannot write the {kind}: {why}; a file that was there is as it was"
        raise BadInput(what, where=shown(path), fix=fix) from None


def only_ours(path: Path) -> bool:
    """Whether this user alone can have written a plain file or a folder: what is run from it is what we put there."""
    try:
        about = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
    return plain and about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def check_file(path: Path, option: str) -> None:
    """Refuse a file that cannot be written, before what it would hold is made."""
    why = _unwritable(path)
    if why:
        raise BadInput(f"{path} cannot be written: {why}", where=option, fix="another file")


def _unwritable(path: Path) -> str:
    """Why a file cannot be written; nothing where it can. A plain one is made anew in its folder."""
    try:
        target = _target(path)
    except OSError as problem:
        return str(problem.strerror).lower()
    if target.is_dir():
        return "it is a folder"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    there = [target] if target.exists() else []
    needed = there if there and not target.is_file() else [*there, target.parent]
    return "" if all(os.access(one, os.W_OK) for one in needed) else "permission denied"


def shown(path: Path | str) -> str:
    """A path as it can be printed: bytes of a name that are no UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_folder(path: Path) -> bool:
    """Whether a folder is there and can be looked into: somebody else's home is as none."""
    return os.access(path, os.R_OK | os.X_OK) and path.is_dir()


def own_folder(path: Path) -> None:
    """Make a folder that foretell keeps, with those it lies in, for its owner alone. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def _target(path: Path) -> Path:
    """The file that is written: a link goes on pointing where it does. Raises OSError where that is itself."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _usual_mode(target: Path) -> int:
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _settle(folder: Path) -> None:
    """Let the new name reach the disk too, where folders can be asked for that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass  # not on this file system
    finally:
        os.close(handle)
