"""Brent's bound on greedy schedules, and work and depth of graphs against plain walks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.model import zoo
from foretell.model.fold import unfold
from foretell.model.graph import Graph
from foretell.model.operators import operators
from foretell.model.work_depth import bounds, greedy_steps, work_depth

Dag = list[list[int]]


def levels(dag: Dag) -> int:
    """Vertices on the longest path; vertices come after those they wait for."""
    level: list[int] = []
    for before in dag:
        level.append(1 + max((level[other] for other in before), default=0))
    return max(level, default=0)


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    count = draw(st.integers(1, 40))
    some = [st.lists(st.integers(0, at - 1), max_size=3, unique=True) if at else st.just([]) for at in range(count)]
    return [draw(before) for before in some]


@given(dags(), st.integers(1, 12))
def test_a_greedy_schedule_keeps_brents_bound(dag: Dag, processors: int) -> None:
    low, high = bounds(len(dag), levels(dag), processors)
    assert low <= greedy_steps(dag, processors) <= high


@given(dags())
def test_one_processor_does_the_work_and_many_the_depth(dag: Dag) -> None:
    assert greedy_steps(dag, 1) == len(dag)
    assert greedy_steps(dag, len(dag)) == levels(dag)


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        greedy_steps([[1], [0]], 2)


def summed(dag: Dag, terms: list[int]) -> int:
    """Add a binary tree of additions over these vertices; gives its root."""
    while len(terms) > 1:
        pairs = [terms[at : at + 2] for at in range(0, len(terms), 2)]
        terms = [_joined(dag, pair) for pair in pairs]
    return terms[0]


def _joined(dag: Dag, pair: list[int]) -> int:
    if len(pair) == 1:
        return pair[0]
    dag.append(pair)
    return len(dag) - 1


def products(dag: Dag, count: int) -> list[int]:
    first = len(dag)
    dag.extend([] for _ in range(count))
    return list(range(first, first + count))


sizes = st.integers(1, 9)


@given(sizes, sizes, sizes, st.integers(1, 9))
def test_a_dense_layer_written_out(rows: int, inner: int, columns: int, processors: int) -> None:
    """Work is the number of products, depth the additions on the longest path."""
    dag: Dag = []
    for _ in range(rows * columns):
        summed(dag, products(dag, inner))
    part = operators()["matmul"]().forward(
        {"batch": 1, "row": rows, "in": inner, "out": columns}, dict.fromkeys("xwy", 4)
    )
    assert sum(not before for before in dag) == part.work
    assert sum(bool(before) for before in dag) == part.work - rows * columns
    assert levels(dag) - 1 == part.depth
    low, high = bounds(len(dag), levels(dag), processors)
    assert low <= greedy_steps(dag, processors) <= high


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
def test_a_convolution_written_out(inner: int, outputs: int, height: int, width: int, processors: int) -> None:
    """A tree for each factor of the sum: columns, then rows, then channels of the kernel."""
    dag: Dag = []
    for _ in range(outputs):
        planes: list[int] = []
        for _ in range(inner):
            rows = [summed(dag, products(dag, width)) for _ in range(height)]
            planes.append(summed(dag, rows))
        summed(dag, planes)
    operator = operators()["convolution"](kernel=(height, width), stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    n = {"sample": 1, "group": 1, "in": inner, "out": outputs, "height": 1, "width": 1}
    part = operator.forward(n, dict.fromkeys("xwy", 4))
    assert sum(not before for before in dag) == part.work
    assert levels(dag) - 1 == part.depth
    low, high = bounds(len(dag), levels(dag), processors)
    assert low <= greedy_steps(dag, processors) <= high


def plain_walk(graph: Graph, step: bool) -> tuple[int, int]:
    """Work and depth on the unfolded graph, by the definition."""
    tensors, nodes = unfold(graph.blocks)
    costs = [{part: node.cost(part, node.widths(tensors)) for part in ("forward", *node.gradients)} for node in nodes]
    ready = [0] * len(tensors)
    for node, cost in zip(nodes, costs, strict=True):
        end = max((ready[operand.tensor] for operand in node.inputs), default=0) + cost["forward"].depth
        for output in node.outputs:
            ready[output] = end
    if not step:
        return sum(cost["forward"].work for cost in costs), max(ready)
    gradient = [0] * len(tensors)
    for node, cost in reversed(list(zip(nodes, costs, strict=True))):
        start = max(max(ready[output], gradient[output]) for output in node.outputs)
        for operand in node.inputs:
            part = "weight_gradient" if operand.name in node.operator.weight_operands else "input_gradient"
            if part in cost:
                gradient[operand.tensor] = max(gradient[operand.tensor], start + cost[part].depth)
    return sum(part.work for cost in costs for part in cost.values()), max(*ready, *gradient)


@pytest.mark.parametrize("spec", ["vgg16", "resnet50-paradl", "vit-b-16", "bert", "lenet"])
@pytest.mark.parametrize("step", [False, True])
def test_a_folded_graph_is_as_deep_as_an_unfolded_one(spec: str, step: bool) -> None:
    graph = zoo.load(spec, 2)
    found = work_depth(graph, step=step)
    assert (found.work, found.depth) == plain_walk(graph, step)
