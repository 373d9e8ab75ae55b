"""A page about one member: figures with their sources, some text, and references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from foretell.cli.table import folded


class PageFigure(NamedTuple):
    """One line: a name, a value, and where the value comes from (nothing: it needs no source)."""

    name: str
    value: str
    source: str = ""
    more: str = ""  # a second source, of another part of the value


class MemberPage(NamedTuple):
    """All that is said about one member."""

    kind: str
    name: str
    title: str
    figures: tuple[PageFigure, ...]
    texts: tuple[str, ...]
    references: tuple[str, ...]
    data: Any  # the member itself, as programs read it

    def render(self) -> str:
        """The page, eighty columns wide."""
        sources = list(dict.fromkeys(text for figure in self.figures for text in (figure.source, figure.more) if text))
        article = "an" if self.kind[0] in "aeiou" else "a"
        parts = [folded(f"{self.name} is {article} {self.kind}: {self.title}")]
        if self.figures:
            parts.append("\n".join(aligned(self.figures, sources)))
        parts += self.texts
        if sources:
            parts.append("\n".join(["sources", *(_numbered(at, text) for at, text in enumerate(sources, 1))]))
        if self.references:
            parts.append("\n".join(["references", *(folded(f"  {text}", 4) for text in self.references)]))
        return "\n\n".join(part for part in parts if part)

    def json(self) -> dict[str, Any]:
        """The same for programs: figures in SI units, as the member has them."""
        return {"kind": self.kind, "name": self.name, "title": self.title, self.kind: self.data}


def aligned(figures: Iterable[PageFigure], sources: list[str]) -> Iterator[str]:
    wide = max(len(figure.name) for figure in figures) + 2
    for figure in figures:
        numbers = dict.fromkeys(sources.index(text) + 1 for text in (figure.source, figure.more) if text)
        marks = "".join(f" [{number}]" for number in numbers)
        yield folded(f"{figure.name:<{wide}}{figure.value}{marks}", wide)


def _numbered(at: int, text: str) -> str:
    mark = f"  [{at}] "
    return folded(f"{mark}{text}", len(mark))


def written(one: Any) -> str:
    """A value of a table as people write it."""
    if isinstance(one, bool):
        return "yes" if one else "no"
    if isinstance(one, list | tuple):
        return "/".join(map(str, one))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(one)
