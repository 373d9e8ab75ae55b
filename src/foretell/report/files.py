"""Reports as files: the page, and each of its figures alone for a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from foretell.errors import BadInput
from foretell.files import check_file
from foretell.files import save as save_whole
from foretell.report.page import Page, figure_style, html
from foretell.report.png import png
from foretell.report.svg import Chart, alone

LARGEST = 6 * 1024 * 1024
"""Bytes that a page may have, so that it can be mailed."""


def save(page: Page, file: str) -> int:
    """Write the page; its size in bytes."""
    content = html(page).encode()
    if len(content) > LARGEST:
        raise BadInput(f"the page has {len(content):,} bytes", where="--html", fix="fewer micro-batches or ranks")
    save_whole(Path(file), content, "page")
    return len(content)


def check_page(file: str | None) -> None:
    """Refuse a file that no page can be written to, before all that it would show is made."""
    if file is not None:
        check_file(Path(file), "--html")


def save_figures(page: Page, folder: str, kind: str = "svg") -> list[str]:
    """Write each figure as a file of its own, of a kind of DRAWINGS; their names."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadInput(
            f"{folder} cannot be made: {problem.strerror}", where=f"--{kind}", fix="another folder"
        ) from None
    names = [f"{chart.name}.{kind}" for chart in page.charts]
    for chart, name in zip(page.charts, names, strict=True):
        save_whole(Path(folder) / name, DRAWINGS[kind]([chart]), "drawing")
    return names


def check_drawing(file: Path, where: str) -> None:
    """Refuse a file that no drawing is written to, before all that would be drawn is made."""
    if file.suffix.lower().removeprefix(".") not in DRAWINGS:
        fix = " or ".join(str(file.with_suffix(f".{kind}")) for kind in DRAWINGS)
        raise BadInput(f"{file} is no drawing that foretell writes", where=where, fix=fix)


def save_drawing(charts: Sequence[Chart], file: Path, where: str, paper: bool = False) -> None:
    """Write charts as one drawing, of the kind that the file's name ends with; on `paper` it has a background."""
    check_drawing(file, where)
    save_whole(file, DRAWINGS[file.suffix.lower().removeprefix(".")](charts, paper), "drawing")


def _svg(charts: Sequence[Chart], paper: bool = False) -> bytes:
    return alone(charts, figure_style(), paper).encode()


def _png(charts: Sequence[Chart], paper: bool = False) -> bytes:
    return png(alone(charts, figure_style(), paper))


DRAWINGS: Final[dict[str, Callable[..., bytes]]] = {"svg": _svg, "png": _png}
"""How a drawing is written, by the end of its file's name."""
