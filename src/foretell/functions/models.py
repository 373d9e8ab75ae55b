"""Models: what they are, and what they need."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from foretell.arguments import checked

if TYPE_CHECKING:
    from foretell.model.analysis import Analysis
    from foretell.model.graph import Graph


@checked
def load(model: str | PathLike[str], batch: int | None = None, seq: int | None = None) -> Graph:
    """The graph of a model: a name, a config.json, a .net file, or file.py:factory."""
    from foretell.model import source

    return source.load(fspath(model), batch, seq)


def trace(module: Any, inputs: Any, loss: Any = None, name: str = "") -> Graph:
    """The graph of a PyTorch module (or of a function that builds it) on these inputs."""
    from foretell.model.importers import torch_trace

    return torch_trace.trace(module, inputs, loss, name)


@checked
def analyze(model: str | PathLike[str] | Graph, batch: int | None = None, seq: int | None = None) -> Analysis:
    """What a model needs and how far it can be split; `model` is a text, a path or a graph."""
    from foretell.errors import BadInput
    from foretell.model import analysis
    from foretell.model.graph import Graph

    if not isinstance(model, Graph):
        return analysis.analyze(load(model, batch, seq))
    if batch not in (None, model.batch) or seq is not None:
        raise BadInput(f"this graph is for a batch of {model.batch}", fix="load the model with another batch or seq")
    return analysis.analyze(model)
