"""The same model for another number of samples."""

from __future__ import annotations

import functools
import weakref
from typing import TypeVar

import msgspec

from foretell.caches import forgettable
from foretell.model.dims import Dim, Loop
from foretell.model.graph import Block, Graph, Tensor

SAMPLE = "sample"

Sized = TypeVar("Sized", Tensor, Loop)
"""What has dims."""


@forgettable
@functools.lru_cache(maxsize=256)
def with_samples(graph: Graph, samples: int) -> Graph:
    """A graph with every dim of samples set to this many; what else it does is left as it is."""
    if samples == graph.batch:
        return graph
    found = _resized(graph, samples)
    if samples != ANY:
        _remember(found, skeleton(graph))
    return found


def _resized(graph: Graph, samples: int) -> Graph:
    """What has no samples, most weights and their loops, stays the same object."""
    sized = Dim(SAMPLE, samples)
    replace = msgspec.structs.replace

    def with_dims(one: Sized) -> Sized:
        if all(dim.name != SAMPLE for dim in one.dims):
            return one
        return replace(one, dims=tuple(sized if dim.name == SAMPLE else dim for dim in one.dims))

    def block_of(block: Block) -> Block:
        nodes = tuple(replace(node, loops=tuple(map(with_dims, node.loops))) for node in block.nodes)
        return replace(block, tensors=tuple(map(with_dims, block.tensors)), nodes=nodes)

    return replace(graph, batch=samples, blocks=tuple(map(block_of, graph.blocks)))


ANY = 23
"""Samples of a skeleton: no other dim of a usual model is as large, so none is taken for it."""


_SKELETONS: dict[int, tuple[weakref.ref[Graph], Graph]] = {}
"""Of graphs that are alive: those that differ in their samples share one, and need not be compared to find it."""


def skeleton(graph: Graph) -> Graph:
    """The graph as far as it does not depend on the number of samples: one for all of them."""
    if graph.batch == ANY:
        return graph
    known = _SKELETONS.get(id(graph))
    if known is None or known[0]() is not graph:
        known = _remember(graph, with_samples(graph, ANY))
    return known[1]


def _remember(graph: Graph, like: Graph) -> tuple[weakref.ref[Graph], Graph]:
    key = id(graph)
    _SKELETONS[key] = weakref.ref(graph, lambda _: _SKELETONS.pop(key, None)), like
    return _SKELETONS[key]
