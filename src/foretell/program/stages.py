"""Which pieces of the model go to which stage of the pipeline."""

from __future__ import annotations

from itertools import accumulate

from foretell.model.graph import Graph
from foretell.model.layers import LayerPiece, layers, pieces
from foretell.plan.facts import facts
from foretell.plan.stages import layers_per_stage


def stages(graph: Graph, parts: int, split: tuple[int, ...], rule: str) -> tuple[tuple[LayerPiece, ...], ...]:
    """The pieces of each part: as many layers as the plan says, or by the trainer's rule.

    What lies between two layers goes with the one before; what comes after the last goes to the last stage.
    """
    names = layers(graph)
    counts = split or layers_per_stage(rule, len(names), parts, facts(graph).costs)
    bounds = list(accumulate(counts))
    place = {name: next(part for part, bound in enumerate(bounds) if index < bound) for index, name in enumerate(names)}
    all_pieces = pieces(graph)
    last = max((at for at, piece in enumerate(all_pieces) if piece.layer), default=-1)
    found: list[list[LayerPiece]] = [[] for _ in range(parts)]
    here = 0
    for at, piece in enumerate(all_pieces):
        here = parts - 1 if at > last else max(here, place.get(piece.layer, here))
        found[here].append(piece)
    return tuple(tuple(part) for part in found)
