"""foretell tells how a training run will go before you rent the GPUs, and then proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.version import __version__

if TYPE_CHECKING:
    from foretell.model.analysis import Analysis
    from foretell.model.graph import Graph

__all__ = ["__version__", "analyze", "load"]


def load(model: str, batch: int | None = None, seq: int | None = None) -> Graph:
    """The graph of a model: a name, a config.json, a .net file, or file.py:factory."""
    from foretell.model import source

    return source.load(model, batch, seq)


def analyze(model: str | Graph, batch: int | None = None, seq: int | None = None) -> Analysis:
    """What a model needs and how far it can be split; `model` is a text or a graph."""
    from foretell.model import analysis

    return analysis.analyze(load(model, batch, seq) if isinstance(model, str) else model)
