"""Where records are kept that nobody named a file for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "FORETELL_RECORDS"
"""The folder, for those who want another."""


def home() -> Path:
    """The folder of this person's records; it may not be there yet."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return Path(given)
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "share") / "foretell" / "records"
