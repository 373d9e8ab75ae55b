"""A model of which some weights alone are trained: the last layers, parts by their names, a tower and not the others.

Where nothing before an operator is trained, no gradient goes further back and nothing is kept for it
(`model/gradients.py`): the last layers of a decoder are the cheapest to train, its embeddings the dearest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.caches import forgettable
from foretell.model.adapters import TARGETS
from foretell.model.fold import unfold
from foretell.model.frozen import settled
from foretell.model.graph import Block, Flat, Graph, Node
from foretell.model.layers import layers, pieces
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.normalization import Normalize

PLACES: Final = {
    "attention": TARGETS["attention"],
    "feed_forward": TARGETS["feed_forward"],
    "vision": ("vision", "vision_tower", "vision_model", "visual"),
    "projector": ("projector", "multi_modal_projector", "connector", "merger"),
    "language": ("language", "language_model"),
}
"""Words for parts of a model, and what modules call them: a part of their paths."""

ROLES: Final = ("embeddings", "head", "norms", "biases")
"""Words for weights by what they do, wherever they are."""


@forgettable
@functools.lru_cache(maxsize=32)
def partly_trained(graph: Graph, words: tuple[str, ...], last: int = 0) -> Graph:
    """The model with the last so many layers trained, and the parts that these words name, and nothing else."""
    flat, trained = unfold(graph.blocks), set[int]()
    own = {*layers(graph)[-last:]} if last else set[str]()
    at = 0
    repetitions: list[tuple[Block, int]] = []
    for piece in pieces(graph):
        block = graph.blocks[piece.block]
        for node in flat.nodes[at : at + piece.stop - piece.start]:
            trained |= {*_read(flat, node, words, piece.layer in own, piece.layer)}
        at += piece.stop - piece.start
        if piece.stop == len(block.nodes):
            repetitions.append((block, at))
    tensors = tuple(
        msgspec.structs.replace(tensor, trainable=tensor.trainable and number in trained)
        for number, tensor in enumerate(flat.tensors)
    )
    return settled(graph, flat, Flat(tensors, flat.nodes), repetitions)


def _read(flat: Flat, node: Node, words: tuple[str, ...], whole: bool, layer: str) -> Iterator[int]:
    """Weights of an operator that are trained."""
    parts = {*node.path.split(".")}
    whole = whole or any(parts & {*PLACES[word]} for word in words if word in PLACES)
    head = isinstance(node.operator, Matmul) and not layer and node.path != ""
    for operand in node.inputs:
        number = flat.tensors[operand.tensor].storage
        if flat.tensors[number].role != "parameter":
            continue
        role = (
            (isinstance(node.operator, Embedding) and "embeddings" in words)
            or (head and "head" in words and not parts & {*PLACES["vision"], *PLACES["projector"]})
            or (isinstance(node.operator, Normalize) and "norms" in words)
            or (operand.name == "b" and "biases" in words)
        )
        if whole or role:
            yield number
