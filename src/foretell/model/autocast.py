"""Automatic mixed precision: in how many bytes tensors are held when products run in 16 bits and the rest in 32.

PyTorch's rules (torch.amp, "CUDA Ops that can autocast"): products cast what they read to 16 bits; norms of tokens,
softmax and losses run in fp32; everything else runs in the widest type that it reads. Weights are fp32, so that
embeddings, and sums with a weight, are wide. Whatever a product keeps of a wide tensor is a copy of its own: three
projections of one tensor keep three.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.model.attention import SCORELESS
from foretell.model.graph import Block, Graph, Node, Tensor
from foretell.model.operators.normalization import Normalize
from foretell.units import WIDTH

PRODUCTS: Final = ("matmul", "grouped_matmul", "convolution", "attention", SCORELESS, "recurrent", "recurrent_call")
"""Operators that run in 16 bits, by their tags and as they are priced."""

IN_FULL: Final = ("embedding", "softmax", "cross_entropy", "squared_error")
"""Operators that run in fp32 whatever they read."""

OVER_TOKENS: Final = ("layer", "rms", "group", "written")
"""Norms that do so; batch and instance norm take images as they come."""

FULL, HALF = 4, 2
FLOATS: Final = ("fp32", "bf16", "fp16")


class HeldBytes(NamedTuple):
    """Bytes of an element: of all that is held of a tensor, and of its gradient."""

    kept: float
    gradient: float


Widths: TypeAlias = tuple[tuple[dict[str, int], ...], ...]
"""Bytes per element of each operand, by block and operator."""


@forgettable
@functools.lru_cache(maxsize=64)
def widths_under_autocast(graph: Graph) -> Widths:
    """What operators read and write: products what the graph says, others each tensor as it is held, or in fp32."""
    wide = _wide(graph)
    return tuple(
        tuple(_widths(graph, at, block, node, wide) for node in block.nodes) for at, block in enumerate(graph.blocks)
    )


def _widths(graph: Graph, at: int, block: Block, node: Node, wide: set[tuple[int, int]]) -> dict[str, int]:
    found = graph.widths(block, node)
    if node.kind in PRODUCTS:
        return found
    full = _in_full(node)
    for name, number in ((operand.name, operand.tensor) for operand in node.inputs):
        if _counts(graph.tensor(block, number)):
            found[name] = FULL if full or _is_wide(graph, at, block, number, wide) else HALF
    if node.outputs and _counts(graph.tensor(block, node.outputs[0])):
        found["y"] = FULL if _is_wide(graph, at, block, node.outputs[0], wide) else HALF
    return found


@forgettable
@functools.lru_cache(maxsize=64)
def cast_operands(graph: Graph) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each operator (block, place) that makes copies of operands in another type: the tensors, one copy each."""
    wide = _wide(graph)
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for at, block in enumerate(graph.blocks):
        for index, node in enumerate(block.nodes):
            product = node.kind in PRODUCTS
            if product or _in_full(node):
                numbers = dict.fromkeys(operand.tensor for operand in node.inputs)
                floats = (number for number in numbers if _counts(graph.tensor(block, number)))
                found[at, index] = tuple(n for n in floats if _is_wide(graph, at, block, n, wide) == product)
    return {place: numbers for place, numbers in found.items() if numbers}


@forgettable
@functools.lru_cache(maxsize=64)
def held_under_autocast(graph: Graph, compiled: bool) -> dict[tuple[int, int], HeldBytes]:
    """For each storage (block, tensor) that is not as the graph says, what is held of it.

    A compiler makes one copy for all products that read a tensor. A graph may be one in fp32: whoever wrote the module
    did not think of autocast, and what products make is narrow all the same.
    """
    wide = _wide(graph)
    copies: Counter[tuple[int, int]] = Counter()
    itself: set[tuple[int, int]] = set()
    for at, block in enumerate(graph.blocks):
        for node in block.nodes:
            homes = {home for number in node.keeps for home in _homes(graph, at, block, number)}
            if node.kind in PRODUCTS:
                copies.update(homes)
            else:
                itself.update(homes)
    found: dict[tuple[int, int], HeldBytes] = {}
    for home in wide:
        tensor = graph.blocks[home[0]].tensors[home[1]]
        stays = home in itself or not copies[home] or tensor.role == "input"
        made = min(copies[home], 1) if compiled else copies[home]
        found[home] = HeldBytes(FULL * stays + HALF * made, FULL)
    return found | {home: HeldBytes(HALF, HALF) for home in _said_to_be_wide(graph) if home not in wide}


def _said_to_be_wide(graph: Graph) -> Iterator[tuple[int, int]]:
    """All storages of a graph that has nothing in 16 bits."""
    places = [(at, n) for at, block in enumerate(graph.blocks) for n, one in enumerate(block.tensors) if _counts(one)]
    if all(WIDTH[graph.blocks[at].tensors[n].dtype] == FULL for at, n in places):
        yield from (place for place in places if graph.home(*place)[:2] == place)


def _counts(tensor: Tensor) -> bool:
    return tensor.role in ("activation", "input") and tensor.dtype in FLOATS


def _wide(graph: Graph) -> set[tuple[int, int]]:
    """Storages of fp32 tensors. Layers read what they carry themselves: it takes a second round to know that."""
    wide = {(0, n) for n, tensor in enumerate(graph.blocks[0].tensors) if tensor.role == "input" and _counts(tensor)}
    for _ in range(2):
        for at, block in enumerate(graph.blocks):
            for node in block.nodes:
                if _runs_wide(graph, at, block, node, wide):
                    homes = (graph.home(at, number)[:2] for number in node.outputs)
                    wide.update(home for home in homes if _counts(graph.blocks[home[0]].tensors[home[1]]))
    return wide


def _runs_wide(graph: Graph, at: int, block: Block, node: Node, wide: set[tuple[int, int]]) -> bool:
    if node.kind in PRODUCTS:
        return False
    if _in_full(node):
        return True
    norm = isinstance(node.operator, Normalize)
    return any(
        home in wide or (not norm and graph.blocks[home[0]].tensors[home[1]].role == "parameter")
        for operand in node.inputs
        for home in _homes(graph, at, block, operand.tensor)
    )


def _in_full(node: Node) -> bool:
    return node.kind in IN_FULL or (isinstance(node.operator, Normalize) and node.operator.kind in OVER_TOKENS)


def _is_wide(graph: Graph, at: int, block: Block, number: int, wide: set[tuple[int, int]]) -> bool:
    return any(home in wide for home in _homes(graph, at, block, number))


def _homes(graph: Graph, at: int, block: Block, number: int) -> Iterator[tuple[int, int]]:
    """Where a block's tensor comes from: the first time, and in later repetitions what they carry."""
    yield graph.home(at, number)[:2]
    if number >= len(block.tensors) and block.imports[number - len(block.tensors)].carried >= 0:
        yield graph.home(at, block.imports[number - len(block.tensors)].carried)[:2]
