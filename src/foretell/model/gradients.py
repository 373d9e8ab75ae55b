"""Which gradients a written-out model still needs when fewer of its weights are trained.

An operator has a gradient for an operand that is a trained weight or comes from one. Where all
weights before an operator are frozen, nobody asks for the gradient of its inputs; where its own
weight is frozen, nobody asks for that one. Autograd keeps less accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.model.graph import Flat, Node, Tensor
from foretell.model.operators.layout import View
from foretell.units import FLOATING


def as_trained(before: Flat, after: Flat) -> Flat:
    """The operators of `after` with the gradients that its trained weights ask for, and what these keep.

    `before` is the same model as it was measured or built: an operator that had no gradient there (one that
    chooses, or rounds) gets none. Operators of `after` that `before` does not have come with all they could need.
    """
    had, has = _Needs(before.tensors), _Needs(after.tensors)
    for node in before.nodes:
        had.follow(node, node.gradients)
    known = {node.outputs: node for node in before.nodes}
    read: set[int] = set()
    nodes: list[Node] = []
    for node in after.nodes:
        gradients = has.gradients(node)
        old = known.get(node.outputs)
        all_needed = had.of(old) if old else tuple(operand.name for operand in node.inputs)
        keeps = tuple(_kept(node, all_needed, has.of(node), after.tensors)) if gradients else ()
        settled = msgspec.structs.replace(node, gradients=gradients, keeps=keeps)
        sums = tuple(_sums(settled, has, read))
        nodes.append(msgspec.structs.replace(settled, gradient_sums=sums))
        has.follow(node, gradients)
    return without_unkept(Flat(after.tensors, tuple(nodes)))


class _Needs:
    """The tensors that a gradient comes back to, as operators are met in running order."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._tensors = tensors
        self._needing = {at for at, tensor in enumerate(tensors) if tensor.role == "parameter" and tensor.trainable}

    def of(self, node: Node) -> tuple[str, ...]:
        """The operands of a node that need a gradient."""
        return tuple(operand.name for operand in node.inputs if operand.tensor in self._needing)

    def gradients(self, node: Node) -> tuple[str, ...]:
        """Those of its parts that somebody needs."""
        parts = {_part(node, name) for name in self.of(node)}
        return tuple(part for part in node.gradients if part in parts)

    def follow(self, node: Node, gradients: tuple[str, ...]) -> None:
        if gradients:
            self._needing.update(number for number in node.outputs if self._tensors[number].dtype in FLOATING)


def _part(node: Node, operand: str) -> str:
    return "weight_gradient" if operand in node.operator.weight_operands else "input_gradient"


def _kept(node: Node, had: tuple[str, ...], has: tuple[str, ...], tensors: tuple[Tensor, ...]) -> Iterator[int]:
    """What autograd keeps, less what only the gradients that are gone needed."""
    still = {number for name in node.operator.keeps(has) for number in _named(node, name, tensors)}
    gone = {number for name in node.operator.keeps(had) for number in _named(node, name, tensors)} - still
    return (number for number in node.keeps if number not in gone)


def _named(node: Node, name: str, tensors: tuple[Tensor, ...]) -> Iterator[int]:
    """The tensors that an operator means by a name of something it keeps."""
    if name == "y":
        yield node.outputs[0]
    yield from (operand.tensor for operand in node.inputs if operand.name == name)
    yield from (number for number in node.keeps if tensors[number].role == "kept" and tensors[number].name == name)


def _sums(node: Node, needs: _Needs, read: set[int]) -> Iterator[str]:
    """Operands that an operator before it sends a gradient to as well (the builder's rule)."""
    if node.operator == View("slice"):
        return
    needed = set(needs.of(node))
    for operand in node.inputs:
        if operand.name in needed and _part(node, operand.name) in node.gradients:
            if operand.tensor in read and operand.name in node.operator.spans:
                yield operand.name
            read.add(operand.tensor)


def without_unkept(flat: Flat) -> Flat:
    """Without the tensors that were made only to be kept and are not kept any more."""
    kept = {number for node in flat.nodes for number in node.keeps}
    left = [at for at, tensor in enumerate(flat.tensors) if tensor.role != "kept" or at in kept]
    if len(left) == len(flat.tensors):
        return flat
    number = {old: new for new, old in enumerate(left)}
    tensors = (msgspec.structs.replace(flat.tensors[at], storage=number[flat.tensors[at].storage]) for at in left)
    return Flat(tuple(tensors), tuple(_renumbered(node, number) for node in flat.nodes))


def _renumbered(node: Node, number: dict[int, int]) -> Node:
    return msgspec.structs.replace(
        node,
        inputs=tuple(msgspec.structs.replace(operand, tensor=number[operand.tensor]) for operand in node.inputs),
        outputs=tuple(number[output] for output in node.outputs),
        keeps=tuple(number[kept] for kept in node.keeps),
    )
