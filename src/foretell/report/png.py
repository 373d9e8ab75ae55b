"""A drawing as pixels, for what takes no SVG."""

from __future__ import annotations

from foretell.errors import BadInput, MissingExtra

TIMES = 3.0
"""Pixels a unit of the drawing: a figure as wide as a column of a paper is sharp in print."""

FAMILIES = ("DejaVu Sans", "Liberation Sans", "Arial", "Helvetica", "Noto Sans")
"""Fonts that most systems have one of: text in one that is not there would be left out."""


def png(svg: str) -> bytes:
    """The pixels of a drawing, on white."""
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError:
        fix = "pip install 'foretell[png]', or .svg"
        raise MissingExtra("pixels need resvg, which is not installed", where=".png", fix=fix) from None
    named = svg.replace("system-ui", ", ".join(FAMILIES))  # a browser's word, which resvg does not know
    try:
        return bytes(svg_to_bytes(svg_string=named, background="#ffffff", zoom=TIMES))
    except ValueError as problem:
        raise BadInput(f"the drawing could not be turned into pixels: {problem}", where=".png", fix=".svg") from None
