"""What becomes of a gradient before it travels.

A compressor says what arrives (`lossy`) and how many bytes that is; the memory of what was lost, where it has one
(error feedback), is the same for all and lies here. In virtual time that is all. Real processes send what `packed`
writes, and `opened` reads: the same numbers, in as many bytes as are priced.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.learning.vector import Shapes, Vector, size
from foretell.plan.policies.compression import Compression

Wire: TypeAlias = NDArray[np.uint8]
"""Bytes as they travel."""

WIDTH = 4.0
"""Bytes of an element that is not compressed."""


@dataclass(frozen=True)
class Compressor:
    """One file in `compressors/`: a class with its paper."""

    paper: ClassVar[str]
    summary: ClassVar[str]
    feedback: ClassVar[bool] = False  # what is lost is added to the next gradient
    sums: ClassVar[str] = "apart"  # a sum is as large as one ("adds"), as all without what is dense ("grows"), or none
    correction: ClassVar[float] = 0.0  # momentum that is taken before compression (Lin et al. 2018)

    def of_batch(self, batch: int) -> Compressor:
        """The same for gradients of so many samples."""
        return self

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        """What the other side has after reading."""
        raise NotImplementedError

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        """What travels."""
        raise NotImplementedError

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        """What the other side reads, in 32 bits."""
        raise NotImplementedError

    def size(self, vector: Vector, shapes: Shapes) -> float:
        """Bytes of a gradient of these shapes; `vector` is what `lossy` made, where what is learnt stands for it."""
        raise NotImplementedError

    def size_of_sum(self, one: float, count: int, shapes: Shapes) -> float:
        """Bytes of the sum of so many, each as large as `one`."""
        if self.sums == "adds":
            return one
        return min(count * one, dense(shapes)) if self.sums == "grows" else count * one


def as_bytes(values: Any) -> Wire:
    """Numbers as they lie in memory."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def from_bytes(wire: Wire, kind: type[np.generic], count: int) -> tuple[Vector, Wire]:
    """So many numbers of a kind, and the bytes after them."""
    length = count * np.dtype(kind).itemsize
    return wire[:length].copy().view(kind), wire[length:]


@functools.lru_cache(maxsize=64)
def dense(shapes: Shapes) -> float:
    """Bytes without compression."""
    return WIDTH * size(shapes)


@functools.lru_cache(maxsize=64)
def priced(policy: Compression, shapes: Shapes) -> float:
    """Bytes as the oracle has them for a plan with this policy: one formula for both."""
    total = 0.0
    for shape in shapes:
        elements = size((shape,))
        total += float(policy.payload(elements, shape[0] if shape else 1, WIDTH, len(shape) == 2))
    return total


class Sender:
    """One worker's side of a compressor: what it still owes."""

    __slots__ = ("_compressor", "_draws", "_momentum", "_owed", "_priced", "_shapes")

    def __init__(
        self, compressor: Compressor, shapes: Shapes, draws: np.random.Generator, priced_as: Shapes = ()
    ) -> None:
        self._compressor, self._shapes, self._draws = compressor, shapes, draws
        self._priced = priced_as or shapes  # what is learnt may be far smaller than what travels
        self._owed: Vector | None = None
        self._momentum: Vector | None = None

    @property
    def owed(self) -> Vector | None:
        return self._owed

    def send(self, gradient: Vector) -> tuple[Vector, float]:
        """What arrives, and its bytes."""
        meant = self._meant(gradient)
        arrives = self._compressor.lossy(meant, self._shapes, self._draws)
        self._remember(meant, arrives)
        return arrives, self._compressor.size(arrives, self._priced)

    def write(self, gradient: Vector) -> Wire:
        """The bytes that real processes send."""
        meant = self._meant(gradient)
        wire = self._compressor.packed(meant, self._shapes, self._draws)
        self._remember(meant, self._compressor.opened(wire, self._shapes))
        return wire

    def read(self, wire: Wire) -> Vector:
        """What somebody else wrote."""
        return self._compressor.opened(wire, self._shapes)

    def _meant(self, gradient: Vector) -> Vector:
        """The gradient with what is still owed."""
        meant = self._with_momentum(gradient)
        return meant + self._owed if self._compressor.feedback and self._owed is not None else meant

    def _remember(self, meant: Vector, arrives: Vector) -> None:
        if self._compressor.feedback:
            self._owed = meant - arrives
        if self._momentum is not None:  # what went out is not pushed further (Lin et al. 2018, section 3.2)
            self._momentum = np.where(arrives != 0, 0.0, self._momentum).astype(meant.dtype)

    def _with_momentum(self, gradient: Vector) -> Vector:
        share = self._compressor.correction
        if not share:
            return gradient
        before = gradient * 0 if self._momentum is None else self._momentum
        self._momentum = share * before + gradient
        return self._momentum
