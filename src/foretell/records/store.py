"""A folder of records. Files are written whole or not at all, and never changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from foretell.errors import BadInput
from foretell.files import PRIVATE, is_folder, read_bytes, shown, write_whole
from foretell.records.doubts import doubts
from foretell.records.record import Record
from foretell.records.upgrade import upgrade


def write(folder: Path, record: Record) -> Path:
    """Put a record into a folder and give its path. A crash leaves no half file behind."""
    target = folder / f"{record.identity}.json"
    _whole(record, target, _publish, PRIVATE)
    return target


def save(path: Path, record: Record) -> None:
    """Write a record to a file that a person named; one that is there is replaced, whole or not at all."""
    _whole(record, path, None, None)


def _whole(record: Record, target: Path, publish: Callable[[Path, Path], object] | None, mode: int | None) -> None:
    try:
        write_whole(target, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n", mode, publish)
    except OSError as problem:
        what = f"the record cannot be written: {problem.strerror}; those that are there are as they were"
        raise BadInput(what, where=str(target), fix="another folder: --records, --out or FORETELL_RECORDS") from None


def _publish(temporary: Path, target: Path) -> None:
    """Give a finished file its name. The name holds a digest, so one that exists is the same."""
    try:
        os.link(temporary, target)  # unlike a rename, never replaces a record
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not target.exists():
            temporary.replace(target)


SUFFIX: Final = ".json"
KEPT: Final = "foretell results, which lists the records that are kept"


class ReadRecord(NamedTuple):
    """A record, and what a person should know of it before its figures are believed."""

    record: Record
    doubts: tuple[str, ...]


def read(path: Path) -> Record:
    """A record from its file, brought up to the newest schema."""
    return examined(path).record


def examined(path: Path) -> ReadRecord:
    """A record from its file, with what speaks against it: it is used all the same, but not silently."""
    try:
        content: Any = msgspec.json.decode(read_bytes(path, "record", fix=KEPT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadInput(f"not a record: {problem}", where=shown(path), fix=KEPT) from None
    if not isinstance(content, dict):
        raise BadInput("not a record: it is not an object", where=shown(path), fix=KEPT)
    written = cast("dict[str, Any]", content)
    try:
        found = msgspec.convert(upgrade(written, shown(path)), Record)
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a record: {problem}", where=shown(path), fix=KEPT) from None
    return ReadRecord(found, tuple(doubts(path, written)))


def records(folder: Path) -> Iterator[tuple[Path, ReadRecord | BadInput]]:
    """Every file of a folder that may be a record, oldest name first: what is in it, or why it is none."""
    for path in files(folder):
        try:
            yield path, examined(path)
        except BadInput as problem:
            yield path, problem


def files(folder: Path) -> list[Path]:
    """What may be records: the files in a folder, by name. Files that are being written have another ending."""
    if not is_folder(folder):
        return []
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("."))
