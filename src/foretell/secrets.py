"""Values of the environment that no error shows: secrets by their names, and what a file had us look up.

A launch script that somebody sent may say `--num-layers $AWS_SECRET_ACCESS_KEY`, and a program of the person may print
all that it was given when it fails. Errors say the name in the place of the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

SHORTEST: Final = 6
"""Characters of a value that is looked for: `8` and `true` are words that an error says by itself."""

_SECRET: Final = re.compile(r"TOKEN|SECRET|KEY|PASS|PWD|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_PLACE: Final = re.compile(r"(FILE|PATH|DIR|SOCK|HOME)$|^(OLD)?PWD$", re.IGNORECASE)
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
    return {name: _hidden(value) for name, value in told.items()}


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, Mapping):
        return hidden_in(cast("Mapping[str, Any]", value))
    return [_hidden(one) for one in cast("Sequence[Any]", value)] if isinstance(value, (list, tuple)) else value


def hidden(text: str) -> str:
    """A text for people to read, with `$NAME` in the place of such values."""
    found = _looked_up | {name: value for name, value in os.environ.items() if _SECRET.search(name)}
    for name, value in sorted(found.items(), key=lambda one: -len(one[1])):
        if len(value) >= SHORTEST and not _is_place(name, value):
            text = text.replace(value, f"${name}")
    return _ALL.sub("environ({...})", text)


def _is_place(name: str, value: str) -> bool:
    """Whether a value is a path, which is no secret; passwords begin with a slash, too."""
    return value.startswith(os.sep) and (_PLACE.search(name) is not None or os.path.exists(value))  # noqa: PTH110
