"""Plain tables that fit a terminal of eighty columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

WIDTH = 80


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """Columns aligned, those in `left` to the left and the others to the right.

    The last column that is aligned to the left gives way when the line would be too long.
    """
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    flexible = max(left)
    room = WIDTH - sum(widths) + widths[flexible] - 2 * (len(widths) - 1)
    widths[flexible] = min(widths[flexible], max(12, room))
    shown: list[str] = []
    for line in lines:
        cells = [
            fit(cell, width).ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    rule = "-" * max(len(line) for line in shown)
    return "\n".join([shown[0], rule, *shown[1:]])


def fit(text: str, width: int) -> str:
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
