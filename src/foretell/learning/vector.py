"""Weights and gradients as one flat row of numbers: algorithms are arithmetic on these and know no framework."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

Vector: TypeAlias = NDArray[Any]
Rows: TypeAlias = NDArray[Any]
"""Numbers of samples."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""Of the tensors that make the vector, in its order."""


def size(shapes: Shapes) -> int:
    """Elements of all tensors."""
    return sum(math.prod(shape) for shape in shapes)


def cells(shapes: Shapes) -> Iterator[int]:
    """Elements of each tensor."""
    return (math.prod(shape) for shape in shapes)


def pieces(vector: Vector, shapes: Shapes) -> Iterator[tuple[slice, Vector]]:
    """The tensors of a vector as matrices: the first dim by all the others; with where they lie."""
    begin = 0
    for shape in shapes:
        end = begin + math.prod(shape)
        rows = shape[0] if shape else 1
        yield slice(begin, end), vector[begin:end].reshape(rows, -1)
        begin = end


def mean(vectors: Sequence[Vector]) -> Vector:
    """In the order given: the same vectors make the same mean, to the bit."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total / len(vectors)
