"""What the rules of plans ask about a model: how many heads, experts, positions, layers it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from foretell.model.graph import Graph
from foretell.model.layers import layers, pieces
from foretell.model.limits import limits
from foretell.model.operators.attention import Attention
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul
from foretell.plan.stages import Costs
from foretell.units import product


class Facts(msgspec.Struct, frozen=True):
    """Sizes that ranks share. 0: the model has none of these."""

    layers: int
    heads: int  # the fewest query heads of an attention
    sequence: int  # the fewest queries of an attention
    experts: int
    vocabulary: int
    costs: Costs  # parameters of a layer and of both ends
    limits: tuple[tuple[str, int, str], ...]  # way of splitting, most ranks, the operator that says so

    def limit(self, way: str) -> tuple[int, str]:
        """Most ranks for a way of splitting and the operator that limits it; 0: the model cannot be split so."""
        return next(((ranks, by) for name, ranks, by in self.limits if name == way), (0, ""))


@functools.lru_cache(maxsize=64)
def facts(graph: Graph) -> Facts:
    """The facts of a model."""
    attention = [node.sizes() for _, node in graph.nodes() if isinstance(node.operator, Attention)]
    experts = [node.sizes()["expert"] for _, node in graph.nodes() if isinstance(node.operator, GroupedMatmul)]
    tables = [node.sizes()["vocab"] for _, node in graph.nodes() if isinstance(node.operator, Embedding)]
    return Facts(
        layers=len(layers(graph)),
        heads=min((n["kv_head"] * n["share"] for n in attention), default=0),
        sequence=min((n["query"] for n in attention), default=0),
        experts=min(experts, default=0),
        vocabulary=max(tables, default=0),
        costs=_costs(graph),
        limits=tuple((limit.way, limit.ranks, limit.by) for limit in limits(graph)),
    )


def _costs(graph: Graph) -> Costs:
    """Parameters of the weight matrices of one layer (on average), and of what lies before and after the layers."""
    count, inside, ends = len(layers(graph)), 0, [0, 0]
    started = False
    for piece in pieces(graph):
        size = sum(_matrices(graph, piece.block, piece.start, piece.stop))
        if piece.layer:
            inside += size
            started = True
        else:
            ends[started] += size
    return Costs(max(1.0, inside / max(1, count)), ends[1], ends[0])


def _matrices(graph: Graph, at: int, start: int, stop: int) -> Iterator[int]:
    block = graph.blocks[at]
    for node in block.nodes[start:stop]:
        for operand in node.inputs:
            tensor = graph.tensor(block, operand.tensor)
            if tensor.role == "parameter" and len(tensor.dims) > 1:
                yield product(dim.size for dim in tensor.dims)
