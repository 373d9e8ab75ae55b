"""A model written down once more with its weights frozen, and operators of other people beside its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.model.dims import Dims, Loop
from foretell.model.fold import Repetition, cut
from foretell.model.gradients import as_trained
from foretell.model.graph import Block, Flat, Graph, Node, Operand, Tensor
from foretell.model.operator import PARTS, Operator
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.elementwise import Elementwise

WIDE: Final = "fp32"
"""What is trained beside frozen weights is kept in, where it is kept wide."""

BACKWARD: Final = PARTS[1:]


class FrozenWriter:
    """Operators are taken over one by one, in order; others come between."""

    def __init__(self, flat: Flat) -> None:
        self.tensors = [msgspec.structs.replace(tensor, trainable=False) for tensor in flat.tensors]
        self.nodes: list[Node] = []
        self._instead: dict[int, int] = {}  # tensors of the model to those that are read instead
        self._views: dict[int, list[int]] = {}
        for at, tensor in enumerate(flat.tensors):
            if tensor.storage != at:
                self._views.setdefault(tensor.storage, []).append(at)

    @property
    def written(self) -> Flat:
        return Flat(tuple(self.tensors), tuple(self.nodes))

    def again(self, node: Node) -> Node:
        """An operator of the model, reading what it is to read."""
        self.nodes.append(self._reading(node))
        return self.nodes[-1]

    def instead(self, y: int, other: int) -> None:
        """From now on this other tensor is read for one of the model, and by what looked at it."""
        self._instead[y] = other
        for view in self._views.get(y, ()):
            self.tensors[view] = msgspec.structs.replace(self.tensors[view], storage=other)

    def _reading(self, node: Node) -> Node:
        """The operator, reading others where it is to."""
        return msgspec.structs.replace(
            node,
            inputs=tuple(Operand(o.name, self._instead.get(o.tensor, o.tensor)) for o in node.inputs),
            keeps=tuple(self._instead.get(number, number) for number in node.keeps),
        )

    def elementwise(
        self,
        node: Node,
        function: str,
        operands: dict[str, int],
        dtype: str = "",
        gradients: tuple[str, ...] = BACKWARD[:1],
    ) -> int:
        shape = self.tensors[operands["x"]].dims
        inputs = tuple(Operand(name, number) for name, number in operands.items())
        return self.node(node.path, Elementwise(function), {"item": shape}, inputs, shape, (), dtype, gradients)

    def repeated(self, node: Node, function: str, x: int, other: dict[str, int]) -> int:
        """A function of a tensor and a smaller one that repeats."""
        shape, small = self.tensors[x].dims, self.tensors[next(iter(other.values()))]
        loops = {
            "item": tuple(dim for dim in shape if dim in small.dims),
            "repeat": tuple(dim for dim in shape if dim not in small.dims),
        }
        inputs = (Operand("x", x), *(Operand(name, number) for name, number in other.items()))
        keeps = (x, *other.values()) if function == "multiply" else ()
        dtype = WIDE if WIDE in (small.dtype, self.tensors[x].dtype) else ""
        return self.node(node.path, Broadcast(function), loops, inputs, shape, keeps, dtype, BACKWARD)

    def node(
        self,
        path: str,
        operator: Operator,
        loops: dict[str, Dims],
        inputs: tuple[Operand, ...],
        shape: Dims,
        keeps: tuple[int, ...],
        dtype: str,
        gradients: tuple[str, ...],
    ) -> int:
        """An operator with all the gradients it can have: `as_trained` takes away what nobody needs."""
        output = self.tensor(shape, dtype or self.tensors[inputs[0].tensor].dtype)
        over = tuple(Loop(name, dims) for name, dims in loops.items())
        self.nodes.append(Node(path, operator, over, inputs, (output,), keeps, gradients))
        return output

    def tensor(self, dims: Dims, dtype: str, role: str = "activation", name: str = "", trainable: bool = False) -> int:
        self.tensors.append(Tensor(dims, dtype, len(self.tensors), role, trainable, name))
        return len(self.tensors) - 1


def settled(graph: Graph, before: Flat, after: Flat, repetitions: list[tuple[Block, int]]) -> Graph:
    """The model with the operators of `after`; `repetitions`: those of each block, and where they end there."""
    found = as_trained(before, after)
    return msgspec.structs.replace(graph, blocks=cut(found, list(_runs(found, repetitions))))


def _runs(flat: Flat, repetitions: list[tuple[Block, int]]) -> Iterator[Repetition]:
    """Repetitions that are still equal stay folded: the first ones may have fewer gradients than those after them."""
    last: Repetition | None = None
    block: Block | None = None
    start = 0
    for own, stop in repetitions:
        length = stop - start
        if last and own is block and _equal(flat, last.start, start, length):
            last = last._replace(times=last.times + 1, place=own.place, stride=own.stride)
        else:
            if last:
                yield last
            last = Repetition(start, length, 1)
        block, start = own, stop
    if last:
        yield last


def _equal(flat: Flat, one: int, other: int, length: int) -> bool:
    """Whether two repetitions have the same gradients."""

    def parts(start: int) -> list[tuple[object, ...]]:
        return [(n.gradients, n.gradient_sums, len(n.keeps)) for n in flat.nodes[start : start + length]]

    return parts(one) == parts(other)


def dims_of(node: Node, name: str) -> Dims:
    return next((loop.dims for loop in node.loops if loop.name == name), ())


def operand_of(node: Node, name: str) -> int:
    return next(operand.tensor for operand in node.inputs if operand.name == name)
