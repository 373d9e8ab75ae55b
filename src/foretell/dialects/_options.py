"""Keys of a file that no figure has: those that are free of cost, and those that make it another kind of run.

A key that is in neither list, and in no table, is told by its name: it may change the cost.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from foretell.errors import BadInput

SHOWN = 12
"""Keys that a note names."""


def off(value: Any) -> bool:
    """Whether a key is there and says nothing."""
    return value is None or value is False or value in ("", "None", "none", "null", "False", "false", [], {})


def unlike(document: Mapping[str, Any], models: Mapping[str, str]) -> str:
    """What makes the model none of the zoo's, in words; empty: nothing."""
    for pattern, meaning in models.items():
        found = next((key for key, value in document.items() if _meant(key, value, pattern) and not off(value)), None)
        if found is not None:
            return f"{document[found] if found.endswith('()') else found}: {meaning}"
    return ""


def refuse(document: Mapping[str, Any], refused: Mapping[str, str], where: str) -> None:
    """Refuse a file that is not what a plan can describe: a key, or a key with its value, and what it means."""
    for pattern, meaning in refused.items():
        found = next((key for key, value in document.items() if _meant(key, value, pattern) and not off(value)), None)
        if found is not None:
            value = document[found]
            said = found if value is True else f"{found} {value}" if isinstance(value, str | int | float) else found
            said = str(value) if found.endswith("()") else said
            what, _, fix = meaning.partition(" | ")
            raise BadInput(f"{said}: {what}", where=where, fix=fix or "another file")


def _meant(key: str, value: Any, pattern: str) -> bool:
    """Whether a pattern is about a key: `save*`, or `dispatcher=all*` with its value."""
    name, equals, wanted = pattern.partition("=")
    return fnmatchcase(key, name) and (not equals or fnmatchcase(str(value), wanted))


def unknown_keys(document: Mapping[str, Any], known: Iterable[str], free: Iterable[str]) -> tuple[str, ...]:
    """A note on the keys that nobody here knows, or none."""
    read = set(known)
    patterns = tuple(free)
    found = [
        key
        for key, value in document.items()
        if key not in read
        and not (key.endswith("()") or key in ("import", "def"))
        and not off(value)
        and not any(_meant(key, value, pattern) for pattern in patterns)
    ]
    if not found:
        return ()
    shown = ", ".join(_meaning(key, read) for key in found[:SHOWN]) + (
        f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    )
    return (f"not read, and may change the cost: {shown}",)


NEAR = 0.9
"""How alike a key is to one that is read, from which on that one may be meant."""


def _meaning(key: str, read: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, read, 1, NEAR)
    return f"{key} ({close[0]}?)" if close else key
