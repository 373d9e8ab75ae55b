"""Which layers a strategy splits: the rest is done whole by every rank.

The tool is told so by a file beside the model. Its files for filter and channel parallelism name all
convolutions. Those for spatial parallelism are listed here; for models that have none, convolutions
and max poolings are split. A plan can name the layers itself: `spatial4[CONV1..CONV2]`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TypeAlias

from foretell.errors import BadInput
from foretell.model.zoo._layer_file import LayerFile, LayerLine, paths
from foretell.units import product

Choice: TypeAlias = tuple[bool, ...]
"""For each layer of the file, whether it is split."""

SPATIAL: dict[str, tuple[str, ...]] = {
    "AlexNet": ("CONV*", "MPOOL1", "MPOOL2"),
    "VGG16": ("CONV*", "MPOOL*"),
    "ResNet50": ("*CONV*",),
    "CosmoFlow": ("CONV1", "CONV2"),
}
"""By the name of the model in the layer file: the tool's spatial_*.lc."""

KINDS: dict[str, tuple[str, ...]] = {
    "filter": ("convolution",),
    "channel": ("convolution",),
    "spatial": ("convolution", "max pool"),
}
"""What is split where no file says so."""


def split_layers(file: LayerFile, way: str, only: str = "", clean: bool = False) -> Choice:
    """The layers that are split by `filter`, `channel` or `spatial`; none by anything else.

    The clean table splits all that can be split: layers with weights, or with windows.
    """
    if only:
        return _named(file, only)
    if clean:
        can = {"filter": has_weights, "channel": has_weights, "spatial": has_window}
        return tuple(way in can and can[way](layer) for layer in file.layers)
    if way == "spatial" and file.model in SPATIAL:
        found = tuple(any(fnmatchcase(name, p) for p in SPATIAL[file.model]) for name in paths(file))
        if any(found):
            return found
    kinds = KINDS.get(way, ())
    return tuple(layer.kind in kinds for layer in file.layers)


def has_weights(layer: LayerLine) -> bool:
    return product(layer.w) > 0


def has_window(layer: LayerLine) -> bool:
    """Whether it looks at more than one position and leaves some."""
    return layer.kind != "dense" and len(layer.w) > 2 and layer.w[2] > 1


def _named(file: LayerFile, only: str) -> Choice:
    names = [name.lower() for name in paths(file)]
    found = [False] * len(names)
    for part in only.lower().split(","):
        first, dots, last = part.partition("..")
        starts = [at for at, name in enumerate(names) if fnmatchcase(name, first)]
        ends = [at for at, name in enumerate(names) if fnmatchcase(name, last)] if dots else starts
        if not starts or not ends or (dots and starts[0] > ends[-1]):
            near = ", ".join(paths(file)[:6])
            raise BadInput(f"no layers are called {part!r}", where=f"[{only}]", fix=f"names such as {near}")
        chosen = range(starts[0], ends[-1] + 1) if dots else starts
        for at in chosen:
            # A range takes in what lies between; what has no window or weights there passes through whole.
            found[at] = not dots or file.layers[at].kind in ("convolution", "max pool", "average pool", "dense")
    return tuple(found)
