"""Values of the environment that no error shows: secrets by their names, and what a file had us look up.

A launch script that somebody sent may say `--num-layers $AWS_SECRET_ACCESS_KEY`, and a program of the person may print
all that it was given when it fails. Errors say the name in the place of the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

SHORTEST: Final = 6
"""Characters of a value that is looked for: `8` and `true` are words that an error says by itself."""

_SECRET: Final = re.compile(r"TOKEN|SECRET|KEY|PASS|PWD|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_ALL: Final = re.compile(r"environ\(\{.*?\}\)", re.DOTALL)
_looked_up: Final[dict[str, str]] = {}


def looked_up(name: str) -> str | None:
    """A variable's value, for a file that names it; None where nobody set it."""
    value = os.environ.get(name)
    if value is not None:
        _looked_up[name] = value
    return value


def hidden_in(told: Mapping[str, Any]) -> dict[str, Any]:
    """The same for what programs are told."""
    return {name: hidden(value) if isinstance(value, str) else value for name, value in told.items()}


def hidden(text: str) -> str:
    """A text for people to read, with `$NAME` in the place of such values."""
    found = _looked_up | {name: value for name, value in os.environ.items() if _SECRET.search(name)}
    for name, value in sorted(found.items(), key=lambda one: -len(one[1])):
        if len(value) >= SHORTEST and not value.startswith(os.sep):  # a path is none
            text = text.replace(value, f"${name}")
    return _ALL.sub("environ({...})", text)
