"""Plain tables that fit a terminal of eighty columns."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Sequence
from typing import Final

WIDTH = 80


CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t\r"}
CONTROLS_OF_LINES: Final = {**CONTROLS, ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): " "}
"""Characters that tell a terminal to do something: a file's words are shown, and never obeyed."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """Columns aligned, those in `left` to the left and the others to the right.

    The last column that is aligned to the left gives way when the line would be too long.
    """
    lines = [list(header), *([cell.translate(CONTROLS_OF_LINES) for cell in row] for row in rows)]
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


GLUE = "\u00a0"
"""A space at which a line does not end."""

_LABEL = re.compile(r"  (?:where|try|rule|why) +")


def folded(text: str, indent: int = 2, before: str = "", width: int = WIDTH) -> str:
    """A paragraph in lines of eighty columns that goes on indented, after what stands before it; words stay whole, and
    a number stays with its per cent sign."""
    filled = textwrap.fill(
        text.translate(CONTROLS).replace(" %", f"{GLUE}%").replace("± ", f"±{GLUE}"),
        width,
        initial_indent=before,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(GLUE, " ")


def folded_lines(message: str) -> str:
    """An error in lines of eighty columns; what goes on stands under the text of its label.

    A plan that is shown with a caret below stays as it is; what is expected there goes on below.
    """
    lines = message.translate(CONTROLS).split("\n")
    return "\n".join(_fold(line, shown=at + 1 < len(lines) and _caret(lines[at + 1])) for at, line in enumerate(lines))


def _caret(line: str) -> bool:
    return line.lstrip().startswith("^ ")


def _fold(line: str, shown: bool) -> str:
    if len(line) <= WIDTH or shown:
        return line
    before = line[: line.index("^") + 2] if _caret(line) else line[: len(line) - len(line.lstrip())]
    label = _LABEL.match(line)
    indent = min(len(before), WIDTH // 2) if _caret(line) else label.end() if label else len(before) + 2
    return folded(line[len(before) :], indent, before, max(WIDTH, len(before) + 40))


def comma_separated(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same as CSV, with full numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")
