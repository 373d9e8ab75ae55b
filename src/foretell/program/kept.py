"""The model with what a trainer's kernels keep of it for the backward pass (`plan.kept`)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import msgspec

from foretell.caches import forgettable
from foretell.model.autocast import HeldBytes
from foretell.model.graph import Block, Graph, Node, Operand
from foretell.model.heads import heads
from foretell.model.layers import pieces
from foretell.model.operators.attention import Attention
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.layout import View
from foretell.plan.kept import Kept
from foretell.program.written_norms import with_written_norms

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
    block = with_written_norms(block) if kept.norms == "written" else block
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
    if kept.loss in ("chunks", "chunks twice"):
        return _in_chunks(found, kept.loss == "chunks twice")
    return found if kept.loss == "logarithms" else _in_place(found, maker, copied=kept.loss == "softmax")


def _multiplies(node: Node) -> bool:
    return isinstance(node.operator, Elementwise) and node.operator.function == "multiply" and len(node.inputs) > 1


def _gates(node: Node) -> bool:
    """Whether it is f(gate), or its product with up."""
    return isinstance(node.operator, Elementwise) and node.operator.function in ("silu", "gelu", "multiply")


def _made_by(block: Block, maker: dict[int, int], number: int) -> str:
    return block.nodes[maker[number]].kind if number in maker else ""


def _activated(block: Block, maker: dict[int, int], node: Node) -> Iterator[int]:
    """What an activation made of a product for this multiplication alone."""
    readers = Counter(operand.tensor for other in block.nodes for operand in other.inputs)
    for number in (operand.tensor for operand in node.inputs):
        if _made_by(block, maker, number) == "elementwise" and readers[number] == 1:
            yield number


def _in_place(block: Block, maker: dict[int, int], copied: bool) -> Block:
    """The loss lies where its logits were: whoever made them holds the memory. So does their gradient, or a copy."""
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


def _in_chunks(block: Block, twice: bool) -> Block:
    """The loss reads what the product made, a piece at a time, and leaves the gradient there for both of its products.

    The product keeps the one piece: it is there at once with the gradients of the hidden state and of the weight, as
    where all of them are made in the forward pass.
    """
    nodes, gone = list(block.nodes), set[int]()
    for loss, cast, product in heads(block):
        head, node = nodes[product], nodes[loss]
        (logits,) = head.outputs
        whole = msgspec.structs.replace(head.operator, pieces=True, twice=twice)
        nodes[product] = msgspec.structs.replace(head, operator=whole, keeps=(*head.keeps, logits))
        inputs = (Operand("x", logits), *node.inputs[1:])
        nodes[loss] = msgspec.structs.replace(node, operator=CrossEntropy(fused=True), inputs=inputs, keeps=())
        gone |= {cast} if cast is not None else set()
    left = tuple(node for index, node in enumerate(nodes) if index not in gone)
    return msgspec.structs.replace(block, nodes=left)


def casts(node: Node) -> bool:
    """Whether it makes the same numbers in another width."""
    return isinstance(node.operator, Elementwise) and node.operator.function == "cast"


def passes_gradient(block: Block, node: Node, in_place: bool) -> bool:
    """Whether the gradient of its output is that of its inputs, or takes their memory."""
    if isinstance(node.operator, View):
        return True
    if isinstance(node.operator, CrossEntropy):
        return in_place or _is_read_through(block, node.inputs[0].tensor)
    if casts(node):
        return in_place and block.tensors[node.outputs[0]].storage != node.outputs[0]
    return isinstance(node.operator, Elementwise) and node.operator.function == "add"


def _is_read_through(block: Block, logits: int) -> bool:
    """Whether a loss reads its logits through a cast that has no memory of its own (see `_in_place`)."""
    if logits >= len(block.tensors) or block.tensors[logits].storage == logits:
        return False
    return any(casts(node) for node in block.nodes if logits in node.outputs)


def multiplies_low(graph: Graph, at: int, node: Node) -> bool:
    """Whether an operator is a product that runs in few bits where layers do."""
    return (
        node.kind in LOW and "router" not in node.path and any(one.block == at and one.layer for one in pieces(graph))
    )


@forgettable
@functools.lru_cache(maxsize=64)
def held_as_cast(
    graph: Graph, width: float, gates: bool = False, attended: float = 0.0
) -> dict[tuple[int, int], HeldBytes]:
    """Storages that products of layers alone keep, and their `gates`: in as many bytes as they are cast to.

    What something else keeps too (attention's output) is kept as it is, once: Megatron-Core has its products save what
    they read there (attention.py: set_save_original_input). DeepSeek keeps it in 12 bits for both (`attended`).
    """
    layers = {piece.block for piece in pieces(graph) if piece.layer}
    low, other, outputs = (set[tuple[int, int]]() for _ in range(3))
    for at, block in enumerate(graph.blocks):
        for node in block.nodes:
            cast = multiplies_low(graph, at, node) or (gates and at in layers and _gates(node))
            kept = [graph.home(at, number)[:2] for number in node.keeps]
            own = {graph.home(at, number)[:2] for number in node.outputs}
            if attended and at in layers and isinstance(node.operator, Attention):
                outputs.update(home for home in kept if home in own)
                kept = [home for home in kept if home not in own]
            (low if cast else other).update(kept)
    bytes_of = {home: attended if home in outputs else width for home in low - other}
    tensors = ((home, graph.blocks[home[0]].tensors[home[1]]) for home in bytes_of)
    return {
        home: HeldBytes(bytes_of[home], HALF)
        for home, one in tensors
        if one.role == "activation" and one.dtype in FLOATS
    }
