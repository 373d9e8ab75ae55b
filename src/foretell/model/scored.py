"""A language model that gives a score in place of logits: a reward model, a critic.

transformers' classes for it put a dense layer of one column behind the same decoder (AutoModelForSequenceClassification
with `num_labels=1`; TRL's value heads), on every token. What the loss does with one number a token costs next to
nothing, and is the loss of one class here. A head that shares its weight with the embedding leaves that to it.
"""

from __future__ import annotations

import functools

import msgspec

from foretell.caches import forgettable
from foretell.errors import BadInput
from foretell.model.dims import Dim, Dims, Loop
from foretell.model.fold import fold, unfold
from foretell.model.graph import Block, Flat, Graph, Node, Operand
from foretell.model.heads import heads


@forgettable
@functools.lru_cache(maxsize=16)
def scored(graph: Graph) -> Graph:
    """The model with a head of one column."""
    flat = unfold(graph.blocks)
    found = heads(Block(flat.tensors, flat.nodes))
    if len(found) != 1:
        what = f"{graph.name} has no logits whose head could give a score instead"
        raise BadInput(what, where="MODEL", fix="a language model of the zoo: llama3-8b")
    (pair,) = found
    product = flat.nodes[pair.product]
    columns = next(loop.dims for loop in product.loops if loop.name == "out")
    places = {place for place in (pair.product, pair.cast, pair.loss) if place is not None}
    made = {number for place in places for number in (*flat.nodes[place].outputs, *flat.nodes[place].keeps)}
    weight = next(operand.tensor for operand in product.inputs if operand.name == "w")
    readers = [node for node in flat.nodes if any(operand.tensor == weight for operand in node.inputs)]
    tensors, number = list(flat.tensors), weight
    if len(readers) > 1:
        number = len(tensors)
        own = msgspec.structs.replace(tensors[weight], storage=number, name=f"{product.path}.score")
        tensors.append(own)
    for at in (made - {weight}) | {number}:
        tensors[at] = msgspec.structs.replace(tensors[at], dims=_one(tensors[at].dims, columns))
    nodes = [
        _narrow(node, columns, weight, number) if place in places else node for place, node in enumerate(flat.nodes)
    ]
    return msgspec.structs.replace(graph, blocks=fold(Flat(tuple(tensors), tuple(nodes))))


def _narrow(node: Node, columns: Dims, weight: int, own: int) -> Node:
    """An operator of the head, with one column, which reads a weight of its own."""
    return msgspec.structs.replace(
        node,
        loops=tuple(Loop(loop.name, _one(loop.dims, columns)) for loop in node.loops),
        inputs=tuple(Operand(one.name, own if one.tensor == weight else one.tensor) for one in node.inputs),
        keeps=tuple(own if number == weight else number for number in node.keeps),
        gradient_sums=() if weight != own else node.gradient_sums,
    )


def _one(dims: Dims, columns: Dims) -> Dims:
    return tuple(Dim(dim.name, 1) if dim in columns else dim for dim in dims)
