"""Parts of a whole as a table: what each takes, its share, and a bar that long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from foretell.cli.table import WIDTH, table
from foretell.units import show_percent

LONGEST = 28
"""Columns of the longest bar."""

EIGHTHS = "▏▎▍▌▋▊▉█"
PLAIN = "#"
"""Where the terminal has no blocks."""


def largest_first(parts: Mapping[str, float], least: float = 0.0) -> list[tuple[str, float]]:
    """Parts that are worth a line."""
    return sorted(((name, size) for name, size in parts.items() if size >= least), key=lambda part: -part[1])


def parts_table(
    title: str, parts: Iterable[tuple[str, float]], whole: float, show: Callable[[float], str], share: str = "share"
) -> str:
    """A line for each part; bars are as long as shares, the longest as long as there is room for."""
    shares = [(name, size, size / whole if whole else 0.0) for name, size in parts]
    most = max((part for *_, part in shares), default=1.0) or 1.0
    plain = table([title, "", share], [[name, show(size), show_percent(part)] for name, size, part in shares])
    head, rule, *lines = plain.splitlines()
    scale = min(LONGEST, WIDTH - len(rule) - 2) / most
    told = [head, rule]
    for line, (*_, part) in zip(lines, shares, strict=True):
        told.append(f"{line:<{len(rule)}}  {bar(scale * part)}".rstrip())
    return "\n".join(told)


def bar(columns: float) -> str:
    """A bar of so many columns, to an eighth of one where the terminal can."""
    if not _blocks():
        return PLAIN * round(columns)
    whole, eighths = divmod(round(8 * max(0.0, columns)), 8)
    return EIGHTHS[-1] * whole + (EIGHTHS[eighths - 1] if eighths else "")


def _blocks() -> bool:
    try:
        EIGHTHS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
