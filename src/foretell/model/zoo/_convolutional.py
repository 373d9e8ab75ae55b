"""What efficient convolutional networks share: convolution with norm, squeeze-excitation, inverted residuals."""

from __future__ import annotations

from typing import NamedTuple

from foretell.model.build import Builder, Value, dims
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout, stochastic_depth
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import adaptive_average_pool
from foretell.model.zoo import _task as task

INPLACE = ("relu", "leaky_relu")
"""Functions that PyTorch takes the gradient of from their output: in place, they keep one tensor, not two."""


class InvertedBlock(NamedTuple):
    """A 1x1 convolution to `expanded` channels, a depthwise one, and a 1x1 to `filters` channels."""

    kernel: int
    expanded: int
    filters: int
    stride: int
    function: str
    squeezed: int = 0  # channels inside squeeze-excitation; 0 is without
    squeeze_functions: tuple[str, str] = ("relu", "hardsigmoid")  # inside it, and of its gate

    def adds(self, channels: int) -> bool:
        """Whether the block's input, of so many channels, is added to its output."""
        return self.stride == 1 and channels == self.filters


def rounded(channels: float, multiple: int = 8) -> int:
    """The nearest multiple, but never more than a tenth below (MobileNet's rule for scaled widths)."""
    nearest = max(multiple, int(channels + multiple / 2) // multiple * multiple)
    return nearest if nearest >= 0.9 * channels else nearest + multiple


def function_of(g: Builder, x: Value, function: str) -> Value:
    """An activation, in place where that saves memory."""
    with g.scope("activation"):
        return activation(g, x, function, inplace=function in INPLACE)


def conv_norm(
    g: Builder,
    x: Value,
    name: str,
    filters: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    function: str = "",
) -> Value:
    """A convolution that keeps the size (but for its stride), batch norm, and perhaps an activation."""
    with g.scope(name):
        with g.scope("conv"):
            x = convolution(g, x, filters, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
        with g.scope("norm"):
            x = batch_norm(g, x)
        return function_of(g, x, function) if function else x


def squeeze_excitation(g: Builder, x: Value, squeezed: int, functions: tuple[str, str]) -> Value:
    """Every channel times a gate that a small network computes from all channels' means."""
    channels = x.size("channel")
    with g.scope("squeeze"):
        with g.scope("pool"):
            gate = adaptive_average_pool(g, x, 1)
        for name, filters, function in (("reduce", squeezed, functions[0]), ("expand", channels, functions[1])):
            with g.scope(name):
                with g.scope("conv"):
                    gate = convolution(g, gate, filters, 1)
                gate = function_of(g, gate, function)
        return broadcast(g, x, gate, "multiply")


def inverted_residual(g: Builder, x: Value, block: InvertedBlock, drop: float = 0.0) -> Value:
    """One inverted block; `drop` is the rate at which whole samples skip it."""
    channels, shortcut = x.size("channel"), x
    if block.expanded != channels:
        x = conv_norm(g, x, "expand", block.expanded, function=block.function)
    kernel, groups = block.kernel, block.expanded
    x = conv_norm(g, x, "depthwise", groups, kernel, stride=block.stride, groups=groups, function=block.function)
    if block.squeezed:
        x = squeeze_excitation(g, x, block.squeezed, block.squeeze_functions)
    x = conv_norm(g, x, "project", block.filters)
    if not block.adds(channels):
        return x
    with g.scope("drop"):
        x = stochastic_depth(g, x, drop)
    return combine(g, x, shortcut)


def pooled_features(g: Builder, x: Value) -> Value:
    """The mean of every channel, as x[sample, feature]."""
    with g.scope("pool"):
        x = adaptive_average_pool(g, x, 1)
    return view(g, x, (x.dim("sample"), *dims(feature=x.size("channel"))))


def classify(g: Builder, x: Value, classes: int, rate: float) -> None:
    """Dropout, a dense layer to the classes, and the loss."""
    with g.scope("dropout"):
        x = dropout(g, x, rate)
    with g.scope("classifier"):
        x = linear(g, x, dims(class_=classes))
    task.class_loss(g, x)
