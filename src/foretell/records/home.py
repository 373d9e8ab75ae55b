"""Where records, and what can be made again, are kept that nobody named a file for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "FORETELL_RECORDS"
"""The folder, for those who want another."""

HOMELESS: Final = Path("/nonexistent")
"""The home of those who have none, as in Debian's list of users: nothing is found there, and nothing can be written."""


def home() -> Path:
    """The folder of this person's records; it may not be there yet."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return Path(given)
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base else _person() / ".local" / "share") / "foretell" / "records"


def cache_home() -> Path:
    """The folder of what can be made again; it may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else _person() / ".cache") / "foretell"


def _person() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # no HOME, and a user that no list has, as containers start them
        return HOMELESS
