"""The weights of a stage: how large one rank's part of each is, and along which axes it is summed or shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foretell.model.layers import Piece
from foretell.plan.placement import Partial, Placement, Sharded
from foretell.plan.strategy import MeshAxis
from foretell.program.layout import Layout
from foretell.program.spread import storage_owner
from foretell.units import product, share


class Weight(NamedTuple):
    """One parameter as a rank computes with it."""

    name: str
    key: tuple[int, int, int]  # block, tensor and repetition that it belongs to
    layer: str
    shape: tuple[int, ...]  # local, as layers use it
    trainable: bool
    summed: tuple[str, ...]  # axes along which every rank has a summand of its gradient
    shared: tuple[str, ...]  # those of them along which it lies in shares between uses

    @property
    def elements(self) -> int:
        return product(self.shape)

    def part(self, ranks: int) -> int:
        """Elements of the largest share of its first dim: what PyTorch's sharding holds, padding included."""
        return self.elements if ranks == 1 or not self.shape else share(self.shape[0], ranks) * product(self.shape[1:])


def weights(layout: Layout, pieces: Iterable[Piece]) -> tuple[Weight, ...]:
    """The distinct parameters that some pieces of the model use, in the order they use them."""
    found: dict[tuple[int, int, int], Weight] = {}
    for piece in pieces:
        for at, number, repetition in _used(layout, piece):
            if (at, number, repetition) not in found:
                found[at, number, repetition] = _weight(layout, (at, number, repetition), piece.layer)
    return tuple(found.values())


def _used(layout: Layout, piece: Piece) -> Iterator[tuple[int, int, int]]:
    block = layout.graph.blocks[piece.block]
    for node in block.nodes[piece.start : piece.stop]:
        for operand in node.inputs:
            home, number = storage_owner(layout.graph, piece.block, operand.tensor)
            if layout.graph.blocks[home].tensors[number].role == "parameter":
                yield home, number, piece.repetition if home == piece.block else 0


def _weight(layout: Layout, key: tuple[int, int, int], layer: str) -> Weight:
    at, number, _ = key
    tensor = layout.graph.blocks[at].tensors[number]
    summed = tuple(axis.name for axis, where in _gradient(layout, at, number) if isinstance(where, Partial))
    stored = {axis.name: axis.storage.states for axis in layout.axes}
    return Weight(
        tensor.name,
        key,
        layer,
        layout.shape(at, number),
        tensor.trainable,
        summed,
        tuple(name for name in summed if stored[name]),
    )


def _gradient(layout: Layout, at: int, number: int) -> Iterator[tuple[MeshAxis, Placement]]:
    for axis, one in zip(layout.axes, layout.spreads, strict=True):
        yield axis, one.gradients.get((at, number), Sharded(0))
