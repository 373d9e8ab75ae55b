"""Whole numbers of a few bits beside a scale: what most ways to take fewer bits have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, from_bytes
from foretell.learning.vector import Rows, Shapes, Vector, cells, pieces


@dataclass(frozen=True)
class Quantised(Compressor):
    """Of each tensor a scale travels, in 32 bits, and for each element a number from -`most` to `most`."""

    @property
    def most(self) -> int:
        raise NotImplementedError

    @property
    def bits(self) -> int:
        """Of an element."""
        return (2 * self.most).bit_length()

    def coded(self, piece: Vector, draws: np.random.Generator) -> tuple[float, Rows]:
        """The scale of a tensor, and a whole number of it for each element."""
        raise NotImplementedError

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.empty_like(vector)
        for where, piece in pieces(vector, shapes):
            scale, levels = self.coded(piece, draws)
            made[where] = levels * scale
        return made

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        parts: list[Wire] = []
        for _, piece in pieces(vector, shapes):
            scale, levels = self.coded(piece, draws)
            parts += [as_bytes(np.float32(scale)), self.in_bits(levels)]
        return np.concatenate(parts)

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        made: list[Vector] = []
        for count in cells(shapes):
            scale, wire = from_bytes(wire, np.float32, 1)
            length = -(-count * self.bits // 8)
            made.append(self.out_of_bits(wire[:length], count) * scale)
            wire = wire[length:]
        return np.concatenate(made).astype(np.float32)

    def in_bits(self, levels: Rows) -> Wire:
        raised = (levels + self.most).astype(np.uint32)
        return np.packbits(raised[:, None] >> np.arange(self.bits, dtype=np.uint32) & 1)

    def out_of_bits(self, wire: Wire, count: int) -> Rows:
        bits = np.unpackbits(wire, count=count * self.bits).reshape(count, self.bits)
        return bits.astype(np.int64) @ (1 << np.arange(self.bits)) - self.most
