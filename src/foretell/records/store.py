"""A folder of records. Files are written whole or not at all, and never changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from foretell.errors import BadInput
from foretell.files import PRIVATE, read_bytes, write_whole
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


KEPT = "foretell results, which lists the records that are kept"


def read(path: Path) -> Record:
    """A record from its file, brought up to the newest schema."""
    try:
        content: Any = msgspec.json.decode(read_bytes(path, "record", fix=KEPT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadInput(f"not a record: {problem}", where=str(path), fix=KEPT) from None
    if not isinstance(content, dict):
        raise BadInput("not a record: it is not an object", where=str(path), fix=KEPT)
    try:
        return msgspec.convert(upgrade(cast("dict[str, Any]", content), str(path)), Record)
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a record: {problem}", where=str(path), fix=KEPT) from None


def records(folder: Path) -> Iterator[Record]:
    """Every record of a folder, oldest name first."""
    for path in sorted(folder.glob("*.json")):
        yield read(path)
