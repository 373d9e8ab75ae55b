"""Layer files of the oracle paper (Kahira et al. 2021, ParaDL), as graphs.

The zoo ships some of these files and reads them itself, so the reader and the writer live there.
"""

from __future__ import annotations

from pathlib import Path

from foretell.errors import BadInput
from foretell.model.build import Builder
from foretell.model.graph import Graph
from foretell.model.zoo._layer_build import build
from foretell.model.zoo._layer_file import LayerFile, LayerLine, parse, read, write

__all__ = ["LayerFile", "LayerLine", "graph", "load", "parse", "read", "write"]


def load(path: Path, batch: int = 1) -> Graph:
    """The graph of a layer file."""
    return graph(read(path), path.stem, batch, where=str(path))


def graph(file: LayerFile, name: str = "", batch: int = 1, dtype: str = "fp32", where: str = "") -> Graph:
    """The training step of the file's layers on `batch` samples."""
    g = Builder(name or file.model or "layers", dtype, batch)
    try:
        build(g, file, batch)
    except BadInput as problem:
        raise problem.within(where) from None
    return g.graph(source="paradl")
