"""A graph for another number of samples is the graph of the model loaded with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model import layers as layers_module
from foretell.model import zoo
from foretell.model.graph import Graph
from foretell.model.layers import pieces
from foretell.model.resize import skeleton, with_samples
from foretell.model.source import load
from foretell.model.totals import multiplying, totals
from foretell.plan import facts as facts_module
from foretell.plan.facts import facts
from law_examples import examples


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(zoo.names()))
def test_resized_is_loaded(model: str) -> None:
    few = shallow(model)
    assert with_samples(load(few, 4), 12) == load(few, 12)


LAYERS = 4
"""Enough for every kind of layer that a model of the zoo has: the others are alike."""


def shallow(model: str) -> str:
    layers = getattr(zoo.names()[model], "layers", None)
    return f"{model}:layers={LAYERS}" if isinstance(layers, int) and layers > LAYERS else model


def _matrix_work(graph: Graph, at: int, index: int, part: str) -> int:
    block = graph.blocks[at]
    node = block.nodes[index]
    return node.cost_at(part, graph.widths(block, node), node.sizes()).matrix * block.times  # type: ignore[return-value]


@examples(12)
@given(st.sampled_from(sorted(zoo.names())), st.integers(1, 40))
def test_what_samples_do_not_change_is_found_once(model: str, samples: int):
    """What is asked of the skeleton is what the graph itself would have answered."""
    graph = load(model, samples, None)
    needs = totals(graph)
    found = ((at, index, name) for at, index, parts in multiplying(skeleton(graph)) for name in parts)
    work = sum(_matrix_work(graph, *one) for one in found)
    assert work == needs.forward.matrix + needs.backward.matrix
    assert pieces(graph) == layers_module._pieces.__wrapped__(graph)
    own = facts_module._facts.__wrapped__(graph)
    assert facts(graph) == own


def test_a_skeleton_is_shared():
    graph = load("mlp", 5, None)
    first, second = with_samples(graph, 6), with_samples(graph, 7)
    assert skeleton(first) is skeleton(second) is skeleton(graph)
    assert skeleton(skeleton(graph)) is skeleton(graph)
