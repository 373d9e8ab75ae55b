"""The model with what a trainer's kernels keep of it for the backward pass (`plan.kept`)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import msgspec

from foretell.caches import forgettable
from foretell.model.autocast import HeldBytes
from foretell.model.graph import Block, Graph, Node
from foretell.model.layers import pieces
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.layout import View
from foretell.plan.kept import Kept

HALF = 2
FLOATS = ("bf16", "fp16")
LOW = ("matmul", "grouped_matmul")


@forgettable
@functools.lru_cache(maxsize=64)
def as_kept(graph: Graph, kept: Kept) -> Graph:
    """The same operators, of which some keep less."""
    blocks = tuple(_block(block, kept) for block in graph.blocks)
    return graph if blocks == graph.blocks else msgspec.structs.replace(graph, blocks=blocks)


def _block(block: Block, kept: Kept) -> Block:
    nodes = list(block.nodes)
    maker = {number: index for index, node in enumerate(nodes) for number in node.outputs}
    for index, node in enumerate(nodes):
        dropped = set[int]()
        if kept.gated == "inputs" and _multiplies(node):
            dropped |= set(_activated(block, maker, node))
        if kept.weighted == "inside" and node.kind == "broadcast":
            dropped |= {number for number in node.keeps if _made_by(block, maker, number) == "grouped_matmul"}
        if dropped:
            left = tuple(number for number in node.keeps if number not in dropped)
            nodes[index] = msgspec.structs.replace(node, keeps=left)
    found = msgspec.structs.replace(block, nodes=tuple(nodes))
    return found if kept.loss == "logarithms" else _in_place(found, maker, copied=kept.loss == "softmax")


def _multiplies(node: Node) -> bool:
    return isinstance(node.operator, Elementwise) and node.operator.function == "multiply" and len(node.inputs) > 1


def _made_by(block: Block, maker: dict[int, int], number: int) -> str:
    return block.nodes[maker[number]].kind if number in maker else ""


def _activated(block: Block, maker: dict[int, int], node: Node) -> Iterator[int]:
    """What an activation made of a product for this multiplication alone."""
    readers = Counter(operand.tensor for other in block.nodes for operand in other.inputs)
    for number in (operand.tensor for operand in node.inputs):
        if _made_by(block, maker, number) == "elementwise" and readers[number] == 1:
            yield number


def _in_place(block: Block, maker: dict[int, int], copied: bool) -> Block:
    """The loss lies where its logits were, and so does their gradient: whoever made them holds the memory."""
    tensors, nodes = list(block.tensors), list(block.nodes)
    for index, node in enumerate(nodes):
        if not isinstance(node.operator, CrossEntropy) or node.inputs[0].tensor not in maker:
            continue
        logits = node.inputs[0].tensor
        nodes[index] = msgspec.structs.replace(
            node, keeps=tuple(n for n in node.keeps if n >= len(tensors) or tensors[n].name != "logarithms")
        )
        cast = block.nodes[maker[logits]]
        if not copied and casts(cast) and cast.inputs[0].tensor in maker:
            tensors[logits] = msgspec.structs.replace(tensors[logits], storage=cast.inputs[0].tensor)
            logits = cast.inputs[0].tensor
        holder = nodes[maker[logits]]
        nodes[maker[logits]] = msgspec.structs.replace(holder, keeps=(*holder.keeps, logits))
    return msgspec.structs.replace(block, tensors=tuple(tensors), nodes=tuple(nodes))


def casts(node: Node) -> bool:
    """Whether it makes the same numbers in another width."""
    return isinstance(node.operator, Elementwise) and node.operator.function == "cast"


def passes_gradient(block: Block, node: Node, in_place: bool) -> bool:
    """Whether the gradient of its output is that of its inputs, or takes their memory."""
    if isinstance(node.operator, View) or (in_place and isinstance(node.operator, CrossEntropy)):
        return True
    if casts(node):
        return in_place and block.tensors[node.outputs[0]].storage != node.outputs[0]
    return isinstance(node.operator, Elementwise) and node.operator.function == "add"


@forgettable
@functools.lru_cache(maxsize=64)
def held_as_cast(graph: Graph, width: float) -> dict[tuple[int, int], HeldBytes]:
    """Storages that products of layers alone keep: in as many bytes as they are cast to.

    What something else keeps too (attention's output) is kept as it is, once: Megatron-Core has its products save what
    they read there (attention.py: set_save_original_input).
    """
    layers = {piece.block for piece in pieces(graph) if piece.layer}
    low, other = set[tuple[int, int]](), set[tuple[int, int]]()
    for at, block in enumerate(graph.blocks):
        for node in block.nodes:
            cast = at in layers and node.kind in LOW and "router" not in node.path
            (low if cast else other).update(graph.home(at, number)[:2] for number in node.keeps)
    tensors = ((home, graph.blocks[home[0]].tensors[home[1]]) for home in low - other)
    return {home: HeldBytes(width, HALF) for home, one in tensors if one.role == "activation" and one.dtype in FLOATS}
