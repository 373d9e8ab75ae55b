"""The weights of a stage: how large one rank's part of each is, and along which axes it is summed or shared."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.model.graph import Graph, Node
from foretell.model.matrices import row_dims, stacked_dims
from foretell.model.operators.matmul import Matmul
from foretell.model.quantized import FORMATS
from foretell.model.resize import with_samples
from foretell.plan.placement import Partial, Placement, Sharded
from foretell.plan.strategy import MeshAxis, Splitting
from foretell.program.aliases import storage_owner
from foretell.program.sharding.layout import Layout
from foretell.program.sharding.propagate import Sharding, propagate
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
    shared: tuple[str, ...] = ()  # those of them along which it lies in shares between uses
    times: int = 1  # equal layers in a row that have one like it, from its own on
    dense: bool = False  # whether its gradient is a product of two matrices with a row for each sample or token
    stack: int = 1  # matrices that its rows are of: one for each expert
    width: float = 0.0  # bytes an element takes at rest where it is frozen in few bits; 0: as the precision says
    together: int = 1  # rows that no two ranks share: those of an expert, where experts stay whole

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    @property
    def hidden(self) -> bool:
        """Whether it is a matrix of a layer, which some optimizers treat apart."""
        return bool(self.layer) and self.columns > 1

    def part(self, ranks: int) -> int:
        """Elements of the largest share of its rows: what PyTorch's sharding holds, padding included."""
        return share(self.rows // self.together, ranks) * self.together * self.columns

    def gathered(self, ranks: int) -> int:
        """Elements of the tensor into which its shares are gathered: experts that no rank has are padded."""
        return max(self.elements, self.part(ranks) * ranks) if self.together > 1 else self.elements


def key_of(weight: Weight, block: int, repetition: int) -> tuple[int, int, int]:
    """Which weight a repetition of a block means: its own, or the one that all import."""
    return (*weight.key[:2], repetition if weight.key[0] == block else 0)


@forgettable
@functools.lru_cache(maxsize=4096)
def parameters_of(graph: Graph, at: int, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """The distinct parameters that some operators of a block read: (block, tensor)."""
    operands = (operand for node in graph.blocks[at].nodes[start:stop] for operand in node.inputs)
    homes = (storage_owner(graph, at, operand.tensor) for operand in operands)
    return tuple(dict.fromkeys(home for home in homes if graph.blocks[home[0]].tensors[home[1]].role == "parameter"))


def used(layout: Layout, at: int, start: int, stop: int) -> tuple[Weight, ...]:
    """The distinct parameters that some operators of a block read, as its first repetition has them."""
    graph = layout.graph
    found: dict[tuple[int, int], Weight] = {}
    for node in graph.blocks[at].nodes[start:stop]:
        for operand in node.inputs:
            home = storage_owner(graph, at, operand.tensor)
            if home not in found and graph.blocks[home[0]].tensors[home[1]].role == "parameter":
                made = _weight(layout, (*home, 0), node, "")
                dense = (
                    isinstance(node.operator, Matmul) or len(layout.shape(*home)) == 2
                )  # tables: a row for each token
                found[home] = made._replace(dense=dense)
    return tuple(found.values())


@forgettable
@functools.lru_cache(maxsize=64)
def shared_between_blocks(graph: Graph) -> frozenset[tuple[int, int]]:
    """Parameters that operators of another block read too: (block, tensor)."""
    return frozenset(
        home
        for at, block in enumerate(graph.blocks)
        for node in block.nodes
        for operand in node.inputs
        if (home := storage_owner(graph, at, operand.tensor))[0] != at
        and graph.blocks[home[0]].tensors[home[1]].role == "parameter"
    )


@forgettable
@functools.lru_cache(maxsize=64)
def sampled(graph: Graph) -> frozenset[tuple[int, int]]:
    """Parameters whose gradient is a sum over samples: ranks with samples of their own each have a summand."""
    found = _by_samples(graph)
    return frozenset(home for home, where in found.gradients.items() if isinstance(where, Partial))


@forgettable
@functools.lru_cache(maxsize=64)
def separable(graph: Graph) -> bool:
    """Whether every operator works on samples each for itself, so that nothing of a sample travels."""
    found = _by_samples(graph)
    return not found.whole and not found.changes and not found.statistics


def _by_samples(graph: Graph) -> Sharding:
    return propagate(with_samples(graph, 2 * graph.batch), MeshAxis("samples", 2, Splitting(dim="sample")))


def _weight(layout: Layout, key: tuple[int, int, int], node: Node, layer: str) -> Weight:
    at, number, _ = key
    shape, leading = layout.shape(at, number), row_dims(node)
    tensor = layout.graph.blocks[at].tensors[number]
    summed = tuple(axis.name for axis, where in _gradient(layout, at, number) if isinstance(where, Partial))
    return Weight(
        tensor.name,
        key,
        layer,
        product(shape[:leading]),
        product(shape[leading:]),
        tensor.trainable,
        summed,
        stack=product(shape[: stacked_dims(node)]),
        width=FORMATS[tensor.form].stored if tensor.form else 0.0,
    )


def _gradient(layout: Layout, at: int, number: int) -> Iterator[tuple[MeshAxis, Placement]]:
    for axis, one in zip(layout.axes, layout.spreads, strict=True):
        yield axis, one.gradients.get((at, number), Sharded(0))
