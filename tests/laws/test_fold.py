"""Folding loses nothing: it can be undone, and no total changes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model import zoo
from foretell.model.build import Builder, Value, dims
from foretell.model.fold import Repetition, _blocks, _owners, fold, unfold
from foretell.model.graph import Flat, Graph
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm, layer_norm
from foretell.model.totals import totals

Layer = Callable[[Builder, Value, Value, list[Value]], Value]


def _dense(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    with g.scope("dense"):
        return linear(g, x, dims(hidden=8))


def _inplace(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    return activation(g, x, "relu", inplace=True)


def _gelu(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    return activation(g, x, "gelu")


def _norm(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    with g.scope("norm"):
        return layer_norm(g, x)


def _batch_norm(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    with g.scope("bn"):
        return batch_norm(g, x)


def _residual(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    with g.scope("residual"):
        return combine(g, linear(g, x, dims(hidden=8)), x)


def _outside(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    return combine(g, x, first, "multiply")


def _skip(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    return combine(g, x, seen[0], "add")


def _wide(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    with g.scope("wide"):
        both = concatenate(g, [x, seen[-1]], "hidden")
        return linear(g, both, dims(hidden=8))


def _view(g: Builder, x: Value, first: Value, seen: list[Value]) -> Value:
    return view(g, view(g, x, x.dims[::-1], "transpose"), x.dims, "transpose")


LAYERS: list[Layer] = [_dense, _inplace, _gelu, _norm, _batch_norm, _residual, _outside, _skip, _wide, _view]


@st.composite
def programs(draw: st.DrawFn) -> Builder:
    """A few groups of layers, each repeated some times, with skips and shared tensors."""
    g = Builder("random")
    x = first = g.input("x", dims(sample=2, hidden=8))
    with g.scope("stem"):
        x = linear(g, x, dims(hidden=8))
    seen = [x]
    for group in range(draw(st.integers(1, 3))):
        layers = draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4))
        for repetition in range(draw(st.integers(1, 5))):
            with g.scope(f"group{group}.{repetition}"):
                for layer in layers:
                    x = layer(g, x, first, seen)
            seen.append(x)
    return g


def _unfolded(flat: Flat) -> Graph:
    return Graph("random", _blocks(flat, _owners(flat), [Repetition(0, len(flat.nodes), 1)]))


@given(programs())
def test_unfolding_gives_the_same_graph_back(g: Builder) -> None:
    assert unfold(fold(g.flat())) == g.flat()


@given(programs())
def test_no_total_changes(g: Builder) -> None:
    assert totals(g.graph()) == totals(_unfolded(g.flat()))


@given(programs(), st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4))
def test_many_splits_at_once_are_each_split_alone(g: Builder, ranks: list[int]) -> None:
    graph = g.graph()
    together = totals(graph, {"sample": np.array(ranks)})
    for at, count in enumerate(ranks):
        alone = totals(graph, {"sample": count})
        assert np.broadcast_to(together.saved_bytes, len(ranks))[at] == alone.saved_bytes
        assert np.broadcast_to(together.forward.matrix, len(ranks))[at] == alone.forward.matrix


@given(programs())
def test_a_graph_goes_to_json_and_back(g: Builder) -> None:
    graph = g.graph()
    back = Graph.from_json(graph.to_json())
    assert back == graph
    assert hash(back) == hash(graph)
    assert back.fingerprint == graph.fingerprint


def _stem(g: Builder) -> Value:
    """A first layer, which has no input gradient and so equals no later one."""
    with g.scope("stem"):
        return linear(g, g.input("x", dims(sample=2, hidden=8)), dims(hidden=8))


def test_equal_layers_are_one_block() -> None:
    g = Builder("stack")
    x = _stem(g)
    for at in range(80):
        with g.scope(f"layers.{at}"):
            x = _residual(g, _norm(g, x, x, []), x, [])
    _, _, block = g.graph().blocks
    assert (block.times, block.name) == (80, "layers.0..79")
    assert len(g.graph().to_json()) < 5000


def test_layers_that_read_two_masks_in_turn_fold_as_groups() -> None:
    """Every third layer sees all places, the others a window: equal but for the tensor they read."""
    g = Builder("windows")
    window, everything = (g.input(name, dims(sample=2, hidden=8)) for name in ("window", "everything"))
    x = _stem(g)
    for at in range(12):
        with g.scope(f"layers.{at}"):
            x = combine(g, _dense(g, x, x, []), everything if at % 3 == 2 else window, "multiply")
    assert unfold(fold(g.flat())) == g.flat()
    block = g.graph().blocks[-1]
    assert (block.times, len(block.nodes), block.name) == (4, 6, "layers.0..11")


def test_pairs_fold_as_pairs() -> None:
    """Alternating layers, as in windowed transformers, repeat with a period of two."""
    g = Builder("pairs")
    x = _stem(g)
    for at in range(6):
        with g.scope(f"layers.{at}"):
            x = _norm(g, x, x, []) if at % 2 else _dense(g, x, x, [])
    _, _, block = g.graph().blocks
    assert (block.times, len(block.nodes), block.stride) == (3, 2, 2)


def test_a_fold_is_not_declared_but_found() -> None:
    """One layer that differs splits the run."""
    g = Builder("odd one")
    x = _stem(g)
    for at in range(9):
        with g.scope(f"layers.{at}"):
            x = _gelu(g, x, x, []) if at == 4 else _dense(g, x, x, [])
    assert [block.times for block in g.graph().blocks] == [1, 1, 4, 1, 4]


def test_frozen_weights_have_no_gradient() -> None:
    g = Builder("lora")
    x = g.input("x", dims(sample=2, hidden=8))
    g.frozen = True
    with g.scope("base"):
        x = linear(g, x, dims(hidden=8))
    g.frozen = False
    with g.scope("adapter"):
        linear(g, x, dims(hidden=8))
    total = totals(g.graph())
    assert total.trainable == 72
    assert total.parameters == 144
    assert total.input_gradient.matrix == 0
    assert total.weight_gradient.matrix == 2 * 2 * 8 * 8
    assert msgspec.json.decode(g.graph().to_json())


def test_a_large_model_does_not_overflow_arrays() -> None:
    """The flops of a large batch pass 2**63: arrays are floats."""
    graph = zoo.load("llama3-405b", 2048)
    whole = totals(graph)
    assert whole.forward.matrix > 2**63
    together = totals(graph, {"sample": np.array([1, 8])})
    assert together.forward.matrix[0] == pytest.approx(whole.forward.matrix, rel=1e-12)
    assert together.backward.matrix[1] == pytest.approx(totals(graph, {"sample": 8}).backward.matrix, rel=1e-12)


def test_a_loop_can_be_split_by_itself() -> None:
    """A square dense layer has the same dim on both sides; its loops are told apart."""
    g = Builder("square")
    linear(g, g.input("x", dims(sample=2, hidden=8)), dims(hidden=8), bias=False)
    graph = g.graph()
    ((block, node),) = graph.nodes()
    widths = graph.widths(block, node)
    half = node.cost("forward", widths, loops={"out": 2})
    assert 2 * half.matrix == node.cost("forward", widths).matrix
    assert (half.read, half.written) == ((2 * 8 + 8 * 4) * 4, 2 * 4 * 4)


def test_many_different_pairs_fold() -> None:
    """Folding walks, it does not recurse."""
    g = Builder("pairs")
    x = _stem(g)
    for group in range(600):
        for at in range(2):
            with g.scope(f"group{group}.{at}"):
                x = linear(g, x, dims(hidden=8))
    assert len(g.graph().blocks) == 602


def test_weights_keep_their_names() -> None:
    g = Builder("named")
    x = _stem(g)
    for at, name in enumerate((3, 7, 9, 1)):
        with g.scope(f"layers.{at}"):
            weight = g.parameter("", dims(hidden=8, more=8))
        g._tensors[-1] = msgspec.structs.replace(g._tensors[-1], name=f"weights.{name}")
        with g.scope(f"layers.{at}"):
            x = linear(g, x, dims(hidden=8), weight=weight)
    assert unfold(fold(g.flat())) == g.flat()
