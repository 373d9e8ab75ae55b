"""A record that a person named: read, or refused; what speaks against it is said before its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretell.cli.notes import tell_notes

if TYPE_CHECKING:
    from foretell.records.record import Record


def read_named(path: Path) -> Record:
    from foretell.files import shown
    from foretell.records.store import examined

    found = examined(path)
    tell_notes(f"{shown(path)}: {doubt}" for doubt in found.doubts)
    return found.record
