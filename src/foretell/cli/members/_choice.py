"""What strategies and policies have in common: a word, options, and what their files say."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from foretell.cli.members._page import PageFigure, aligned
from foretell.cli.table import folded

if TYPE_CHECKING:
    from foretell.plan.policy import Policy
    from foretell.plan.strategy import Strategy


def options(kind: type[Strategy] | type[Policy]) -> Iterator[PageFigure]:
    for option in kind.syntax:
        yield PageFigure(option.field.replace("_", " "), ", ".join(option.forms))


def choice(kind: type[Strategy] | type[Policy]) -> dict[str, Any]:
    return {
        "word": kind.word,
        "summary": kind.summary,
        "example": kind.example,
        "options": {option.field: tuple(option.forms) for option in kind.syntax},
        "references": kind.references,
    }


def explained(kind: type) -> tuple[str, ...]:
    """What its file says about it, and its class where that is more than a line."""
    said = [sys.modules[kind.__module__].__doc__ or "", kind.__doc__ or ""]
    texts = [inspect.cleandoc(text) for at, text in enumerate(said) if at == 0 or "\n" in text.strip()]
    return tuple(_paragraph(part) for text in texts for part in text.split("\n\n") if part)


ROW = re.compile(r"(\S+) {2,}(\S.*)")
"""A line of a list of words with what each means."""


def _paragraph(text: str) -> str:
    """A paragraph folded; a list of words stays one."""
    lines = text.replace("`", "").splitlines()
    if not ROW.match(lines[0]):
        return folded(" ".join(" ".join(lines).split()), 0)
    rows: list[list[str]] = []
    for line in lines:
        row = ROW.match(line)
        if row:
            rows.append([row[1], row[2]])
        else:
            rows[-1][1] += f" {line.strip()}"
    return "\n".join(aligned([PageFigure(*row) for row in rows], []))
