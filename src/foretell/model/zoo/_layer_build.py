"""Writing the layers of a ParaDL file down as operators.

The files say nothing of strides, paddings and shortcuts. Strides and paddings follow from the sizes
before and after. A shortcut is what entered the first convolution after the last addition or pooling;
where the file leaves a projection out and the shapes differ, the addition reads its own input twice.
"""

from __future__ import annotations

from foretell.errors import BadInput
from foretell.model.build import Builder, Value
from foretell.model.dims import Dim, Dims
from foretell.model.operators.convolution import SPACE, convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import pool
from foretell.model.operators.softmax import softmax
from foretell.model.zoo._layer_file import LayerFile, LayerLine, Shape, paths
from foretell.model.zoo._layer_window import Window, window
from foretell.units import product


def build(g: Builder, file: LayerFile, batch: int) -> Value:
    """Add every layer to the graph; gives what the last one makes."""
    value = g.input("input", dims_of(batch, file.sample))
    made: list[tuple[Shape, Value]] = [(file.sample, value)]
    entry: Value | None = None  # where the open residual block began
    for layer, path in zip(file.layers, paths(file), strict=True):
        with g.scope(path):
            x = _input(g, layer, made, batch)
            if layer.kind == "convolution" and entry is None:
                entry = x
            y = _add(g, layer, x, entry, batch)
        if layer.kind == "add" or layer.kind.endswith("pool"):
            entry = None
        made.append((layer.y, y))
    return made[-1][1]


def dims_of(batch: int, shape: Shape) -> Dims:
    """Dims of so many samples of this shape."""
    space = zip(SPACE[len(SPACE) - len(shape) + 1 :], shape[1:], strict=True)
    return (Dim("sample", batch), Dim("channel", shape[0]), *(Dim(name, size) for name, size in space))


def _input(g: Builder, layer: LayerLine, made: list[tuple[Shape, Value]], batch: int) -> Value:
    """The last value of the shape that the layer reads; the last one of all may be reshaped to it."""
    for shape, value in reversed(made):
        if shape == layer.x:
            return value
    shape, value = made[-1]
    if product(shape) == product(layer.x):
        return view(g, value, dims_of(batch, layer.x))
    wanted = "x".join(map(str, layer.x))
    raise BadInput(f"{layer.name} reads {wanted}, which no layer before it makes", fix="layers in running order")


def _add(g: Builder, layer: LayerLine, x: Value, entry: Value | None, batch: int) -> Value:
    kernel = layer.w[2:]
    match layer.kind:
        case "convolution":
            at = window_of(layer)
            groups = layer.x[0] // layer.w[0]
            return convolution(
                g, x, layer.w[1], kernel, stride=at.stride, padding=at.padding, groups=groups, bias=False
            )
        case "max pool" | "average pool":
            at = window_of(layer)
            function = layer.kind.partition(" ")[0]
            return pool(g, x, function, kernel, stride=at.stride, padding=at.padding, ceil=at.ceil)
        case "dense":
            return linear(g, x, dims_of(batch, layer.y)[1:], contract=len(layer.x), bias=False)
        case "norm":
            return batch_norm(g, x, affine=False)
        case "add":
            return combine(g, x, entry if entry is not None and entry.dims == x.dims else x)
        case "dropout":
            return dropout(g, x, 0.5)
        case "softmax":
            return softmax(g, x)
        case function:
            return activation(g, x, function, inplace=True)


def window_of(layer: LayerLine) -> Window:
    """How the kernel of a convolution or pooling moves."""
    pooling = layer.kind != "convolution"
    found = window(layer.x[1:], layer.w[2:], layer.y[1:], pooling=pooling)
    if found is None:
        raise BadInput(f"{layer.name}: no stride and padding lead from x to y")
    return found
