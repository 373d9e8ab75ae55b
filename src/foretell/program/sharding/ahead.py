"""Looking ahead: whether a share of a layer's outputs can go on to a layer that takes its inputs in shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretell.model.dims import Dims
from foretell.model.graph import Graph, Node
from foretell.model.operator import Need
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.layout import View
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.unknown import Unknown
from foretell.program.sharding.alignment import align, divisible, seen_through

WEIGHTED = (Matmul, Convolution, GroupedMatmul)
"""Operators whose weights can be divided by outputs or inputs."""


@dataclass(frozen=True)
class Ahead:
    """Looks where a share of an output would go: to a layer that takes its inputs in shares, or nowhere."""

    graph: Graph
    ranks: int
    known: dict[tuple[int, int, int], bool] = field(default_factory=dict[tuple[int, int, int], bool])

    def good(self, at: int, number: int, dim: int) -> bool:
        """Whether everybody who reads the tensor can go on with a share of this dim, to a good end."""
        key = (at, number, dim)
        if key not in self.known:
            readers = self._readers(at, number)
            self.known[key] = bool(readers) and all(self._reads(*reader, dim) for reader in readers)
        return self.known[key]

    def ends_in_loss(self, at: int, number: int) -> bool:
        """Whether only the loss reads the tensor, as it is or in another type."""
        readers = self._readers(at, number)
        return bool(readers) and all(
            isinstance(node.operator, CrossEntropy)
            or (isinstance(node.operator, Elementwise | View) and self.ends_in_loss(block, node.outputs[0]))
            for block, node, _ in readers
        )

    def _readers(self, at: int, number: int) -> list[tuple[int, Node, str]]:
        """Who reads a tensor, in its own block or in a later one; nobody if it is carried from layer to layer."""
        block = self.graph.blocks[at]
        if any(entry.carried == number for entry in block.imports):
            return []
        found = [(at, node, o.name) for node in block.nodes for o in node.inputs if o.tensor == number]
        for later, other in enumerate(self.graph.blocks):
            for place, entry in enumerate(other.imports):
                if (entry.block, entry.tensor) == (at, number):
                    if block.times > 1 or other.times > 1:
                        return []
                    local = len(other.tensors) + place
                    found += [(later, node, o.name) for node in other.nodes for o in node.inputs if o.tensor == local]
        return found

    def _reads(self, at: int, node: Node, name: str, dim: int) -> bool:
        block = self.graph.blocks[at]
        source = self.graph.tensor(block, operand_tensor(node, name)).dims
        target = block.tensors[node.outputs[0]].dims
        if isinstance(node.operator, View):
            shown = seen_through(node, source, target, dim, self.ranks)
            return any(self.good(at, node.outputs[0], to) for to in shown)
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
        return to is not None and self.good(at, node.outputs[0], to)


def loop_dims(node: Node, name: str) -> Dims:
    return next((loop.dims for loop in node.loops if loop.name == name), ())


def operand_tensor(node: Node, name: str) -> int:
    return next(operand.tensor for operand in node.inputs if operand.name == name)
