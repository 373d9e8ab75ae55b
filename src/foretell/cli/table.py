"""Plain tables that fit a terminal of eighty columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

WIDTH = 80


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned, the first `left` to the left and the others to the right.

    The first column gives way when the line would be too long.
    """
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    room = WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(12, room))
    shown: list[str] = []
    for line in lines:
        cells = [
            _fit(cell, width).ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    rule = "-" * max(len(line) for line in shown)
    return "\n".join([shown[0], rule, *shown[1:]])


def _fit(text: str, width: int) -> str:
    """The text with its middle cut out when it is too long: both ends of a path tell most."""
    if len(text) <= width:
        return text
    head = (width - 2) // 3
    return f"{text[:head]}..{text[len(text) - (width - 2 - head) :]}"


def comma_separated(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same as CSV, with full numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")
