"""Weights as the matrices that modules store, and what an optimizer keeps and does for those of a whole model.

Hidden matrices are those of a model's layers; tables of words, last layers and vectors are not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.model.graph import Graph, Node
from foretell.model.layers import layers
from foretell.model.operator import OperatorPart, Widths
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.matmul import Matmul
from foretell.model.optimizer import Optimizer
from foretell.units import product


class WeightMatrix(NamedTuple):
    """A matrix as a module stores it, and how many there are: equal layers, experts."""

    rows: int
    columns: int
    times: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.times


def row_dims(node: Node) -> int:
    """Dims of a weight that a module stores as rows: all outputs of a dense layer, the first dim of others.

    Of experts also the second: trainers that have more ranks than experts share out what is inside them.
    """
    if isinstance(node.operator, GroupedMatmul):
        return 2
    if not isinstance(node.operator, Matmul):
        return 1
    return next(len(loop.dims) for loop in node.loops if loop.name == "out")


def stacked_dims(node: Node) -> int:
    """Those of them that count matrices: experts lie in one weight, a matrix each."""
    return 1 if isinstance(node.operator, GroupedMatmul) else 0


def inside(names: Iterable[str], weight: str) -> bool:
    """Whether a weight of this name belongs to one of these layers."""
    return any(weight.startswith(f"{name}.") for name in names)


@forgettable
@functools.lru_cache(maxsize=64)
def hidden_matrices(graph: Graph, tables: bool = False) -> tuple[WeightMatrix, ...]:
    """Those that are trained; with `tables` all matrices are."""
    names, found = layers(graph), dict[tuple[int, int], WeightMatrix]()
    for node, home, number in _reads(graph):
        tensor = graph.blocks[home].tensors[number]
        if (home, number) in found or not tensor.trainable or not (tables or inside(names, tensor.name)):
            continue
        sizes = [dim.size for dim in tensor.dims]
        stacked, rows = stacked_dims(node), row_dims(node)
        if (columns := product(sizes[rows:])) > 1:
            times = graph.blocks[home].times * product(sizes[:stacked])
            found[home, number] = WeightMatrix(product(sizes[stacked:rows]), columns, times)
    return tuple(found.values())


@forgettable
@functools.lru_cache(maxsize=64)
def one_of_each(graph: Graph) -> int:
    """Elements of trained matrices of layers, one of those that are at one place of a layer and of one size."""
    names, found = layers(graph), dict[tuple[str, int, int], int]()
    for node, home, number in _reads(graph):
        tensor = graph.blocks[home].tensors[number]
        layer = next((name for name in names if tensor.name.startswith(f"{name}.")), "")
        if layer and tensor.trainable:
            sizes, stacked, rows = [dim.size for dim in tensor.dims], stacked_dims(node), row_dims(node)
            if (columns := product(sizes[rows:])) > 1:
                each = product(sizes[stacked:rows])
                found[tensor.name.removeprefix(layer), each, columns] = each * columns
    return sum(found.values())


def _reads(graph: Graph) -> Iterator[tuple[Node, int, int]]:
    """Operators with what they read: the block and the number of the tensor whose memory it is."""
    for at, block in enumerate(graph.blocks):
        for node in block.nodes:
            for operand in node.inputs:
                home, number, _ = graph.home(at, operand.tensor)
                yield node, home, number


def _apart(graph: Graph, found: Optimizer) -> tuple[WeightMatrix, ...]:
    """The matrices that have a rule of their own."""
    return hidden_matrices(graph, found.tables) if found.matrix_rule else ()


def trained_elements(graph: Graph) -> int:
    return sum(block.times * one.elements() for block in graph.blocks for one in block.tensors if one.trainable)


def kept_bytes(graph: Graph, found: Optimizer, master: float, width: float) -> float:
    """What an optimizer keeps of a model: master copies of so many bytes each, and states of such a width."""
    apart = _apart(graph, found)
    others = trained_elements(graph) - sum(one.elements for one in apart)
    kept = others * (master + found.rule.state_bytes(width))
    for one in apart:
        rule = found.matrix_rule or found.rule
        kept += one.elements * (master + rule.state_bytes(width))
        kept += one.times * rule.matrix_state_bytes(one.rows, one.columns, width)
    return kept


def update_cost(graph: Graph, found: Optimizer, width: Widths) -> OperatorPart:
    """One step on all weights of a model."""
    apart = _apart(graph, found)
    cost = found.rule.cost(trained_elements(graph) - sum(one.elements for one in apart), width)
    for one in apart:
        rule = found.matrix_rule or found.rule
        cost = cost + rule.cost(one.elements, width)
        if rule.of_matrix:
            cost = cost + rule.of_matrix(one.rows, one.columns) * one.times
    return cost
