"""What the rules of plans ask about a model: how many heads, experts, positions, layers it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.model.evaluated import trains
from foretell.model.graph import Block, Graph
from foretell.model.layers import layers, pieces
from foretell.model.limits import limits
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.pooling import Pool
from foretell.model.resize import ANY, skeleton
from foretell.plan.parts import members, running_order
from foretell.plan.stages import Costs
from foretell.units import product


class Facts(msgspec.Struct, frozen=True):
    """Sizes that ranks share. 0: the model has none of these."""

    layers: int
    trains: bool  # whether any weight is trained; else a step is a forward pass
    heads: int  # the fewest query heads of an attention
    sequence: int  # the fewest queries of an attention; where there is none, or images beside text, places of the text
    given_sequence: bool  # whether the samples are sequences, so that their length can be chosen
    sample: str  # what people call one: sequence, image, sample
    experts: int
    vocabulary: int
    costs: Costs  # parameters of a layer and of both ends
    limits: tuple[tuple[str, int, str], ...]  # way of splitting, most ranks, the operator that says so

    def limit(self, way: str) -> tuple[int, str]:
        """Most ranks for a way of splitting and the operator that limits it; 0: the model cannot be split so."""
        return next(((ranks, by) for name, ranks, by in self.limits if name == way), (0, ""))

    def longer(self, ways: int) -> str:
        """A length of the sequences that can be cut so many ways; empty where it follows from something else."""
        return f"--seq {-(-self.sequence // ways) * ways}" if self.given_sequence else ""


class Extent(NamedTuple):
    """The smallest size of one spatial dim, and where it is."""

    name: str
    size: int
    path: str
    among: tuple[int, ...]  # all spatial sizes there

    @property
    def where(self) -> str:
        """The place and its sizes: layer4.0.conv3 (7x7 = 49 positions)."""
        return f"{self.path} ({'x'.join(map(str, self.among))} = {product(self.among)} positions)"


@forgettable
@functools.lru_cache(maxsize=64)
def facts(graph: Graph) -> Facts:
    """The facts of a model. Of its samples only the limits know how many there are."""
    found = _facts(skeleton(graph))
    limits = tuple((way, _for_samples(way, ranks, graph.batch), by) for way, ranks, by in found.limits)
    return msgspec.structs.replace(found, limits=limits)


def _for_samples(way: str, ranks: int, samples: int) -> int:
    """The most ranks for a way of splitting: ways that share samples out can use as many times more."""
    return ranks // ANY * samples if way.startswith("data") else ranks


@forgettable
@functools.lru_cache(maxsize=64)
def _facts(graph: Graph) -> Facts:
    attention = [node.sizes() for _, node in graph.nodes() if isinstance(node.operator, Attention)]
    experts = [node.sizes()["expert"] for _, node in graph.nodes() if isinstance(node.operator, GroupedMatmul)]
    tables = [node.sizes()["vocab"] for _, node in graph.nodes() if isinstance(node.operator, Embedding)]
    given, images = _positions(graph), _has_images(graph)
    queries = () if given and images else (n["query"] for n in attention)
    return Facts(
        layers=len(layers(graph)),
        trains=trains(graph),
        heads=min((n["kv_head"] * n["share"] for n in attention), default=0),
        sequence=min(queries, default=min(given, default=0)),
        given_sequence=bool(given),
        sample="sequence" if given else "image" if images else "sample",
        experts=min(experts, default=0),
        vocabulary=max(tables, default=0),
        costs=_costs(graph),
        limits=tuple((limit.way, limit.ranks, limit.by) for limit in limits(graph)),
    )


def convolves(graph: Graph) -> bool:
    """Whether a model has convolutions."""
    return any(isinstance(node.operator, Convolution) for _, node in graph.nodes())


@forgettable
@functools.lru_cache(maxsize=64)
def dense_end(graph: Graph) -> str:
    """The dense layers that follow the last convolution, as a part, where they have most of the weights; else nothing.

    Krizhevsky 2014 (arXiv 1404.5997): convolutions have most of the work and few of the weights, dense layers the
    other way round, so that samples are shared out in the one and weights in the other.
    """
    order = running_order(graph)
    nodes = [graph.blocks[at].nodes[index] for at, index, _ in order]
    sizes = [sum(_matrices(graph, at, index, index + 1)) for at, index, _ in order]
    others = [place for place, node in enumerate(nodes) if isinstance(node.operator, Convolution | Attention)]
    if not others or isinstance(nodes[others[-1]].operator, Attention):
        return ""
    dense = [place for place in range(others[-1] + 1, len(nodes)) if isinstance(nodes[place].operator, Matmul)]
    if 2 * sum(sizes[place] for place in dense) <= sum(sizes):
        return ""
    return "..".join(dict.fromkeys((order[dense[0]][2], order[dense[-1]][2])))


def _has_images(graph: Graph) -> bool:
    """Whether samples have a height and a width and nothing more: volumes are no images."""
    inputs = (tensor for block in graph.blocks for tensor in block.tensors if tensor.role == "input")
    names = [{dim.name for dim in tensor.dims} for tensor in inputs]
    return any({"height", "width"} <= own and "depth" not in own for own in names)


def _positions(graph: Graph) -> list[int]:
    """Lengths of the samples that are sequences."""
    inputs = (tensor for block in graph.blocks for tensor in block.tensors if tensor.role == "input")
    return [dim.size for tensor in inputs for dim in tensor.dims if dim.name == "sequence"]


@forgettable
@functools.lru_cache(maxsize=256)
def part_limit(graph: Graph, only: str, way: str) -> tuple[int, str]:
    """The limit of a way of splitting for a part of the model; 0: nothing there can be split so."""
    inside = members(graph, only)
    if inside is None:
        return facts(graph).limit(way)
    blocks = [_kept(block, at, inside) for at, block in enumerate(graph.blocks)]
    found = limits(msgspec.structs.replace(graph, blocks=tuple(blocks)))
    return next(((limit.ranks, limit.by) for limit in found if limit.way == way), (0, ""))


def _kept(block: Block, at: int, inside: frozenset[tuple[int, int]]) -> Block:
    """A block with those of its operators that are inside a part."""
    nodes = tuple(node for index, node in enumerate(block.nodes) if (at, index) in inside)
    return msgspec.structs.replace(block, nodes=nodes, times=block.times if nodes else 1)


@forgettable
@functools.lru_cache(maxsize=256)
def extents(graph: Graph, only: str = "") -> tuple[Extent, ...]:
    """The smallest size of each spatial dim, outermost first, where convolutions and pools of a part read it.

    A rank without a position would have nothing to do, and its neighbours' borders would come from further
    away. A convolution over a single position is a dense layer, which is not split so.
    """
    inside = members(graph, only)
    found: dict[int, Extent] = {}
    for at, block in enumerate(graph.blocks):
        for index, node in enumerate(block.nodes):
            if not isinstance(node.operator, Convolution | Pool) or (inside is not None and (at, index) not in inside):
                continue
            dims = graph.tensor(block, node.inputs[0].tensor).dims[-len(node.operator.kernel) :]
            for place, dim in enumerate(dims if product(dim.size for dim in dims) > 1 else ()):
                if place not in found or dim.size < found[place].size:
                    found[place] = Extent(dim.name, dim.size, node.path, tuple(dim.size for dim in dims))
    return tuple(found[place] for place in sorted(found))


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
