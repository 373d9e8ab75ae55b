"""The products that make logits, beside the losses that read them."""

from __future__ import annotations

from typing import NamedTuple

from foretell.model.graph import Block, Node
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.matmul import Matmul


class LossPair(NamedTuple):
    """Operators of a block by their places."""

    loss: int
    cast: int | None  # to fp32, between the two
    product: int


def heads(block: Block) -> list[LossPair]:
    """Losses whose logits are a product's own, and read by nobody else."""
    maker = {number: index for index, node in enumerate(block.nodes) for number in node.outputs}
    found: list[LossPair] = []
    for index, node in enumerate(block.nodes):
        if not isinstance(node.operator, CrossEntropy):
            continue
        made, cast = maker.get(node.inputs[0].tensor), None
        if made is not None and _casts(block.nodes[made]):
            cast, made = made, maker.get(block.nodes[made].inputs[0].tensor)
        if made is not None and isinstance(block.nodes[made].operator, Matmul) and _alone(block, made, cast):
            found.append(LossPair(index, cast, made))
    return found


def _casts(node: Node) -> bool:
    return isinstance(node.operator, Elementwise) and node.operator.function == "cast"


def _alone(block: Block, product: int, cast: int | None) -> bool:
    """Whether what these two make is read once."""
    made = {number for at in (product, cast) if at is not None for number in block.nodes[at].outputs}
    readers = [operand.tensor for node in block.nodes for operand in node.inputs if operand.tensor in made]
    return len(readers) == len(made)
