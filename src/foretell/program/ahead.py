"""Looking ahead: whether a share of a layer's outputs can go on to a layer that takes its inputs in shares."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.model.dims import Dims
from foretell.model.graph import Block, Graph, Node
from foretell.model.operator import Need
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.layout import View
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.unknown import Unknown
from foretell.program.alignment import align, divisible, seen_through

WEIGHTED = (Matmul, Convolution, GroupedMatmul)
"""Operators whose weights can be divided by outputs or inputs."""


@dataclass(frozen=True)
class Ahead:
    """Looks where a share of an output would go: to a layer that takes its inputs in shares, or nowhere."""

    graph: Graph
    at: int
    ranks: int

    def good(self, number: int, dim: int, depth: int = 0) -> bool:
        """Whether everybody who reads the tensor can go on with a share of this dim, to a good end."""
        block = self.graph.blocks[self.at]
        readers = [(node, o) for node in block.nodes for o in node.inputs if o.tensor == number]
        if not readers or depth > 64 or self._leaves(number):
            return False
        return all(self._reads(block, node, o.name, dim, depth) for node, o in readers)

    def _leaves(self, number: int) -> bool:
        block = self.graph.blocks[self.at]
        return any(entry.carried == number for entry in block.imports) or any(
            entry.block == self.at and entry.tensor == number for later in self.graph.blocks for entry in later.imports
        )

    def _reads(self, block: Block, node: Node, name: str, dim: int, depth: int) -> bool:
        source = self.graph.tensor(block, operand_tensor(node, name)).dims
        target = block.tensors[node.outputs[0]].dims
        if isinstance(node.operator, View):
            shown = seen_through(node, source, target, dim, self.ranks)
            return any(self.good(node.outputs[0], to, depth + 1) for to in shown)
        place = divisible(node, align(node, name, source)[dim], self.ranks)
        if place is None or isinstance(node.operator, Unknown):
            return False
        if isinstance(node.operator, CrossEntropy):
            return place.loop == "class"
        if isinstance(node.operator, WEIGHTED) and name == "x" and place.loop == "in":
            return True
        if node.operator.need(place.loop) is not Need.NOTHING:
            return False
        to = next((d for d, walks in enumerate(align(node, "y", target)) if place in walks), None)
        return to is not None and self.good(node.outputs[0], to, depth + 1)


def loop_dims(node: Node, name: str) -> Dims:
    return next((loop.dims for loop in node.loops if loop.name == name), ())


def operand_tensor(node: Node, name: str) -> int:
    return next(operand.tensor for operand in node.inputs if operand.name == name)
