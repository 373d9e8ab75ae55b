"""What is said of a strategy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.cli.members._choice import choice, explained, options
from foretell.cli.members._page import MemberPage, PageFigure
from foretell.errors import unknown

if TYPE_CHECKING:
    from foretell.plan.strategy import MeshAxis


def names() -> list[str]:
    from foretell.plan.members import strategies

    return list(strategies())


def page(text: str) -> MemberPage:
    from foretell.plan.members import strategies
    from foretell.plan.text import parse

    word = text.lower()
    if word not in strategies() and re.search(r"[0-9]", word):
        word = parse(text).axes[0].word
    if word not in strategies():
        raise unknown("strategy", text, names())
    kind = strategies()[word]
    axis = parse(kind.example).axes[0]
    lines = [PageFigure("written", f"{kind.word}N, such as {kind.example}"), *options(kind)]
    if kind.grid:
        lines.append(PageFigure("grid", f"the ranks may be a grid: {kind.word}2x2"))
    if kind.parts:
        lines.append(PageFigure("for a part", f"{kind.word}4[fc*] is for these layers only"))
    for mesh in axis.axes():
        lines += _mesh(mesh)
    data = choice(kind)
    return MemberPage("strategy", kind.word, kind.summary, tuple(lines), explained(kind), kind.references, data)


SHARDED = {"states": "optimizer states", "gradients": "gradients", "weights": "weights"}
"""What an axis can shard beside the model's own dims."""


def _mesh(mesh: MeshAxis) -> Iterator[PageFigure]:
    """What one axis of the example divides, and how weights lie along it."""
    splitting = mesh.splitting
    parts = [f"the dim {splitting.dim} of the inputs"] if splitting.dim else []
    if splitting.weighted:
        parts.append(f"the {' or '.join(splitting.weighted)} loops of layers with weights")
    if splitting.between:
        parts.append(f"the {splitting.between} between such layers")
    if splitting.attention:
        parts.append(
            {"rotate": "attention, keys and values rotating", "heads": "heads inside attention"}[splitting.attention]
        )
    if splitting.experts == "divide":
        parts.append("experts")
    yield PageFigure(f"{mesh.name} splits", ", ".join(parts) or "the layers, into stages")
    stored = [name for key, name in SHARDED.items() if getattr(mesh.storage, key)]
    if stored:
        yield PageFigure(f"{mesh.name} shards", ", ".join(stored))
    exchange = mesh.exchange
    if exchange.own:
        when = f"every {exchange.period} steps" if exchange.period > 1 else "each step"
        yield PageFigure("versions", f"each rank has its own, brought together {when}")
    if exchange.waits != "all":
        yield PageFigure(
            "waits for", f"{exchange.waits}{f', {exchange.staleness} steps' if exchange.staleness else ''}"
        )
