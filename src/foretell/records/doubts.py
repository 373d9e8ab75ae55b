"""What speaks against a record: it was changed, it is of a day that has not come, or it says what cannot be.

Such a record is used, since its owner may know better, but whoever shows it says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from foretell.records.columns import COLUMNS
from foretell.records.record import identity

_NAMED: Final = re.compile(r"[a-z-]+-\d+-[0-9a-f]{12}")
"""What a record is called that no person gave a name."""

APART: Final = timedelta(hours=1)
"""How far the clocks of two machines may be apart."""

SIGNED: Final = ("loss", "metric")
"""Figures that may be below zero."""


def doubts(path: Path, content: Mapping[str, Any]) -> Iterator[str]:
    """All of them, for a record as its file has it."""
    if changed(path, content):
        yield "it was changed after it was written: its content has another digest than its name"
    created = content.get("created")
    if isinstance(created, str) and in_future(created):
        yield f"it says that it was made on {created[:10]}, which has not come yet"
    yield from impossible(content)


def changed(path: Path, content: Mapping[str, Any]) -> bool:
    """Whether a file is named by a digest, and by another one than that of its content."""
    return _NAMED.fullmatch(path.stem) is not None and path.stem != identity(content)


def in_future(date: str) -> bool:
    """Whether a moment, UTC if it does not say, has not come yet."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return False
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment > datetime.now(UTC) + APART


def impossible(content: Mapping[str, Any]) -> Iterator[str]:
    """Figures that nothing can have: a step of no time, bytes below zero."""
    for name, column in COLUMNS.items():
        value = column.of(content)
        if name in SIGNED or not isinstance(value, float):
            continue
        if not math.isfinite(value) or value < 0 or (name == "step_seconds" and not value > 0):
            yield f"its {name} is {value:g}, which cannot be"
