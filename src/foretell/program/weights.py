"""The weights of a stage: how large one rank's part of each is, and along which axes it is summed or shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foretell.model.graph import Node
from foretell.model.layers import Piece
from foretell.model.operators.matmul import Matmul
from foretell.plan.placement import Partial, Placement, Sharded
from foretell.plan.strategy import MeshAxis
from foretell.program.homes import storage_owner
from foretell.program.layout import Layout
from foretell.units import product, share


class Weight(NamedTuple):
    """One parameter as a rank computes with it."""

    name: str
    key: tuple[int, int, int]  # block, tensor and repetition that it belongs to
    layer: str
    rows: int  # of the matrix that a module stores, local: PyTorch shares these out
    columns: int
    trainable: bool
    summed: tuple[str, ...]  # axes along which every rank has a summand of its gradient
    shared: tuple[str, ...]  # those of them along which it lies in shares between uses

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    def part(self, ranks: int) -> int:
        """Elements of the largest share of its rows: what PyTorch's sharding holds, padding included."""
        return share(self.rows, ranks) * self.columns


def weights(layout: Layout, pieces: Iterable[Piece]) -> tuple[Weight, ...]:
    """The distinct parameters that some pieces of the model use, in the order they use them."""
    found: dict[tuple[int, int, int], Weight] = {}
    for piece in pieces:
        for key, leading in _used(layout, piece):
            if key not in found:
                found[key] = _weight(layout, key, leading, piece.layer)
    return tuple(found.values())


def _used(layout: Layout, piece: Piece) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Each parameter that a piece reads, with how many of its dims are rows of its matrix."""
    block = layout.graph.blocks[piece.block]
    for node in block.nodes[piece.start : piece.stop]:
        for operand in node.inputs:
            home, number = storage_owner(layout.graph, piece.block, operand.tensor)
            if layout.graph.blocks[home].tensors[number].role == "parameter":
                repetition = piece.repetition if home == piece.block else 0
                yield (home, number, repetition), _leading(node)


def _leading(node: Node) -> int:
    """Dims of a weight that a module stores as rows: all outputs of a dense layer, the first dim of others."""
    if not isinstance(node.operator, Matmul):
        return 1
    return next(len(loop.dims) for loop in node.loops if loop.name == "out")


def _weight(layout: Layout, key: tuple[int, int, int], leading: int, layer: str) -> Weight:
    at, number, _ = key
    shape = layout.shape(at, number)
    tensor = layout.graph.blocks[at].tensors[number]
    summed = tuple(axis.name for axis, where in _gradient(layout, at, number) if isinstance(where, Partial))
    stored = {axis.name: axis.storage.states for axis in layout.axes}
    return Weight(
        tensor.name,
        key,
        layer,
        product(shape[:leading]),
        product(shape[leading:]),
        tensor.trainable,
        summed,
        tuple(name for name in summed if stored[name]),
    )


def _gradient(layout: Layout, at: int, number: int) -> Iterator[tuple[MeshAxis, Placement]]:
    for axis, one in zip(layout.axes, layout.spreads, strict=True):
        yield axis, one.gradients.get((at, number), Sharded(0))
