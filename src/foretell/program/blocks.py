"""Copies that a processor's library makes for a convolution, in blocks of channels.

PyTorch gives oneDNN tensors as they are, channel by channel. oneDNN computes on blocks of as many channels as a vector
holds, the last one filled up: it copies what it reads into blocks, makes its result in blocks, and PyTorch copies that
back (aten/src/ATen/native/mkldnn/Conv.cpp: `mkldnn_to_dense`; oneDNN's format nChw16c). All of it is counted by
PyTorch's allocator, and gone when the operator is done.
"""

from __future__ import annotations

from foretell.model.operator import Sizes
from foretell.model.operators.convolution import Convolution
from foretell.units import Quantity, at_least, ceil_div

BLOCK = 16
"""Channels of a block where vectors have 512 bits (AVX-512); with 256 they are 8."""


def working_elements(operator: Convolution, n: Sizes, part: str, block: int) -> Quantity:
    """Elements that a part of a convolution holds at most beside its operands and its result.

    Copies of what is read are let go before the result is copied back.
    """
    read, made = {"forward": ("xw", "y"), "input_gradient": ("yw", "x"), "weight_gradient": ("xy", "w")}[part]
    result = _in_blocks(operator, n, made, block)
    copies = sum(_in_blocks(operator, n, operand, block) for operand in read)
    return result + at_least(copies - operator.elements(made, n), 0)


def _in_blocks(operator: Convolution, n: Sizes, operand: str, block: int) -> Quantity:
    """Elements of an operand with its channels filled up to whole blocks."""
    found = operator.elements(operand, n)
    for channels in {"x": ("in",), "y": ("out",), "w": ("in", "out")}[operand]:
        found = found / n[channels] * ceil_div(n[channels], block) * block
    return found
