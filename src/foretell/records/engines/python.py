"""Reads record by record: always there, and says of each file that it cannot read why."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foretell.errors import BadInput
from foretell.records.columns import row
from foretell.records.results import Found
from foretell.records.store import read
from foretell.records.where import Condition


def select(files: list[Path], condition: Condition) -> Found:
    found = Found([], {})
    for path in files:
        try:
            one = row(path.stem, msgspec.to_builtins(read(path)))
        except BadInput as problem:
            found.unreadable[str(path)] = problem.what
            continue
        if condition.holds(one):
            found.rows.append(one)
    return found
