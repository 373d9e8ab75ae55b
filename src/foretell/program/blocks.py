"""Copies that a processor's library makes for a convolution, in blocks of channels.

PyTorch gives oneDNN tensors as they are, channel by channel. oneDNN computes on blocks of as many channels as a vector
holds, the last one filled up (its format nChw16c): it copies what it reads into blocks, makes its result in blocks, and
PyTorch copies that back (aten/src/ATen/native/mkldnn/Conv.cpp, `mkldnn_to_dense`). Its allocator counts all of that; it
is gone when the operator is done. What is read in blocks, and what is not, was seen by the profiler (PyTorch 2.13):
tests/torchrun/test_memory.py compares.
"""

from __future__ import annotations

from typing import Any, Final

from foretell.model.operator import Sizes
from foretell.model.operators.convolution import Convolution
from foretell.units import Quantity, at_least, ceil_div, product

BLOCK: Final = 16
"""Channels of a block where vectors have 512 bits (AVX-512); with 256 they are 8."""

COLOURS: Final = 3
"""Channels up to which the gradient of filters is made from images as they are."""

MANY: Final = 16
"""Samples from which on filters of one pixel are the library's too: before, they are a plain product
(aten/src/ATen/native/Convolution.cpp, `use_mkldnn`, one thread)."""


def working_elements(operator: Convolution, n: Sizes, part: str, block: int) -> Quantity:
    """Elements that a part of a convolution holds at most beside its operands and its result.

    Copies of what is read are let go before the result is copied back.
    """
    read, made = {"forward": ("xw", "y"), "input_gradient": ("yw", "x"), "weight_gradient": ("xy", "w")}[part]
    copies = sum(_filled(operator, n, operand, block) for operand in read if not _plain(operand, n, part, block))
    held = _filled(operator, n, made, block) + at_least(copies - operator.elements(made, n), 0)
    return held * _by_library(operator, n)


def _plain(operand: str, n: Sizes, part: str, block: int) -> bool:
    """Whether it is read as it is: images with few channels."""
    return operand == "x" and n["group"] * n["in"] < (block if part == "forward" else COLOURS + 1)


def _filled(operator: Convolution, n: Sizes, operand: str, block: int) -> Quantity:
    """Elements of an operand with its channels filled up to whole blocks; filters of each group by themselves."""
    found = operator.elements(operand, n)
    groups = n["group"] if operand != "w" else 1
    for channels in {"x": ("in",), "y": ("out",), "w": ("in", "out") if n["group"] == 1 else ()}[operand]:
        count = groups * n[channels]
        found = found / count * ceil_div(count, block) * block
    return found


def _by_library(operator: Convolution, n: Sizes) -> Any:
    """Whether the library computes it, and not PyTorch by a plain product."""
    pixel = product(operator.kernel) == 1 and product(operator.stride) == 1 and n["group"] == 1
    return (n["sample"] >= MANY) if pixel else True
