"""Reports as files: the page, and each of its figures alone for a paper."""

from __future__ import annotations

from pathlib import Path

from foretell.errors import BadInput
from foretell.report.page import Page, figure_style, html

LARGEST = 6 * 1024 * 1024
"""Bytes that a page may have, so that it can be mailed."""


def save(page: Page, file: str) -> int:
    """Write the page; its size in bytes."""
    content = html(page).encode()
    if len(content) > LARGEST:
        raise BadInput(f"the page has {len(content):,} bytes", where="--html", fix="fewer micro-batches or ranks")
    _write(Path(file), content, "--html")
    return len(content)


def save_figures(page: Page, folder: str) -> list[str]:
    """Write each figure as an SVG file of its own; their names."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadInput(f"{folder} cannot be made: {problem.strerror}", where="--svg", fix="another folder") from None
    names: list[str] = []
    for chart in page.charts:
        name = f"{chart.name}.svg"
        _write(Path(folder) / name, chart.svg(figure_style()).encode(), "--svg")
        names.append(name)
    return names


def _write(path: Path, content: bytes, where: str) -> None:
    try:
        path.write_bytes(content)
    except OSError as problem:
        raise BadInput(f"{path} cannot be written: {problem.strerror}", where=where, fix="another file") from None
