"""A value that an option cannot take, in our own words: what it is, and what could stand there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from foretell.errors import near

if TYPE_CHECKING:
    import click

NUMBER: Final = re.compile(r"'(.*)' is not a valid (integer|float)", re.DOTALL)
WORD: Final = re.compile(r"'(.*)' is not one of ", re.DOTALL)
THOUSANDS: Final = {"k": 1024, "m": 1024**2}
"""Of tokens of a sequence, which are counted in powers of two."""


def told(problem: click.UsageError) -> dict[str, str] | None:
    """What is wrong, where and a way out; None for what is no such value."""
    param = getattr(problem, "param", None)
    if param is None or not param.opts:
        return None
    option, message = param.opts[0], getattr(problem, "message", "")
    if form := NUMBER.match(message):
        kind = "whole number" if form[2] == "integer" else "number"
        return {"what": f"{form[1]!r} is no {kind}", "where": option, "fix": _number(form[1], option, form[2])}
    if form := WORD.match(message):
        known = [str(one) for one in param.type.choices]
        close = near(form[1], known, 1) or known
        return {
            "what": f"{option} has no choice {form[1]!r}",
            "where": option,
            "fix": ", ".join(f"{option} {one}" for one in close) if len(close) == 1 else f"one of {', '.join(close)}",
        }
    return None


def _number(text: str, option: str, kind: str) -> str:
    """The number that was perhaps meant: 4k tokens are 4,096, 2k steps are 2,000, and a unit is left out."""
    from foretell.cli.amounts import amount

    shape = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z/%]*)\s*", text.lower())
    found: Any = None
    if shape and option == "--seq" and shape[2] in THOUSANDS:
        found = float(shape[1]) * THOUSANDS[shape[2]]
    elif shape:
        found = amount(text) if shape[2] in ("k", "m") else float(shape[1])
    if found is None or (kind == "integer" and found != int(found)):
        return f"digits alone: {option} {8 if kind == 'integer' else 0.5}"
    return f"{option} {int(found) if found == int(found) else found}"
