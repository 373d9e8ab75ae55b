"""Which layers go to which stage of the pipeline."""

from __future__ import annotations

from itertools import accumulate

from foretell.errors import BadInput
from foretell.model.graph import Graph
from foretell.program.layers import Piece, layers, pieces
from foretell.units import product


def stages(graph: Graph, parts: int, split: tuple[int, ...], rule: str) -> tuple[tuple[Piece, ...], ...]:
    """The pieces of each part: as many layers as the plan says, or by the trainer's rule."""
    names = layers(graph)
    counts = split or _counts(graph, names, parts, rule)
    place: dict[str, int] = {}
    bounds = list(accumulate(counts))
    for index, name in enumerate(names):
        place[name] = next(part for part, bound in enumerate(bounds) if index < bound)
    found: list[list[Piece]] = [[] for _ in range(parts)]
    here = 0
    for piece in pieces(graph):
        here = max(here, place.get(piece.layer, here))
        if not piece.layer and _after_all(graph, piece):
            here = parts - 1  # the head and the loss stay with the last stage, even if it has no layer
        found[here].append(piece)
    return tuple(tuple(part) for part in found)


def _after_all(graph: Graph, piece: Piece) -> bool:
    last = max(at for at, other in enumerate(pieces(graph)) if other.layer)
    return pieces(graph).index(piece) > last


def _counts(graph: Graph, names: tuple[str, ...], parts: int, rule: str) -> tuple[int, ...]:
    """Layers per part by a trainer's rule."""
    if parts == 1:
        return (len(names),)
    if rule == "even":
        return tuple(len(names) * (at + 1) // parts - len(names) * at // parts for at in range(parts))
    costs = _parameters(graph)
    layer_costs = [costs.get(name, 0) for name in names]
    if rule == "torchtitan":  # the ends count as a layer each
        return _torchtitan(len(names), parts)
    tail = costs[""] if rule == "nanotron" else 0
    return _running_sum(layer_costs, tail, parts)


def _torchtitan(count: int, parts: int) -> tuple[int, ...]:
    """Layers when the token table and the head weigh as much as one layer each."""
    total = count + 2
    whole = [total * (at + 1) // parts - total * at // parts for at in range(parts)]
    whole[0] -= 1
    whole[-1] -= 1
    return tuple(max(0, size) for size in whole)


def _running_sum(costs: list[int], tail: int, parts: int) -> tuple[int, ...]:
    """A part ends when the sum so far reaches its share of the total; `tail` comes after the layers."""
    total = sum(costs) + tail
    counts, so_far = [0] * parts, 0
    part = 0
    for cost in costs:
        counts[part] += 1
        so_far += cost
        while part < parts - 1 and so_far >= total * (part + 1) / parts:
            part += 1
    return tuple(counts)


def _parameters(graph: Graph) -> dict[str, int]:
    """Matrix elements of the weights of each layer; under the empty name those after the layers (the head)."""
    found: dict[str, int] = {"": 0}
    done = False
    for piece in pieces(graph):
        block = graph.blocks[piece.block]
        for node in block.nodes[piece.start : piece.stop]:
            for operand in node.inputs:
                tensor = graph.tensor(block, operand.tensor)
                if tensor.role == "parameter" and len(tensor.dims) > 1 and (piece.layer or done):
                    found[piece.layer] = found.get(piece.layer, 0) + product(dim.size for dim in tensor.dims)
        done = done or bool(piece.layer)
    return found


def check_split(graph: Graph, parts: int, split: tuple[int, ...]) -> None:
    """Refuse a list of layers per stage that is not one of this model."""
    count = len(layers(graph))
    if split and (len(split) != parts or sum(split) != count):
        even = "/".join(str(count * (at + 1) // parts - count * at // parts) for at in range(parts))
        what = f"split={'/'.join(map(str, split))} has {len(split)} stages and {sum(split)} layers"
        raise BadInput(f"{what}; the plan has {parts} stages and {graph.name} {count} layers", fix=f"split={even}")
