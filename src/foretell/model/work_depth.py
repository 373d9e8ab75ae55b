"""Work and depth: how much there is to do, and how much of it must wait for something else.

A computation is a graph of unit vertices (Ben-Nun, Hoefler, section 2.3). Work W is the number of
vertices, depth D the longest path; W / D is the average parallelism, and p processors need a time
T_p with max(W / p, D) <= T_p <= W / p + D. The paper prints min for max, which is a looser bound.

What is counted (Tables 4 and 6 of the paper): a multiply-add is one vertex of work, a sum of n
products has depth ceil(log2 n), the additions on its longest path. An element-wise function is a
vertex an element and one deep. Biases, and the sums where a gradient flows in from several
consumers, are not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foretell.model.graph import Block, Graph, Import, Node
from foretell.model.operator import PARTS
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.pooling import Pool
from foretell.units import Quantity, product


@dataclass(frozen=True, slots=True)
class WorkDepth:
    """Vertices, and those on the longest path."""

    work: int
    depth: int

    @property
    def parallelism(self) -> float:
        """How many processors can be busy on average."""
        return self.work / max(1, self.depth)


def bounds(work: Quantity, depth: Quantity, processors: Quantity) -> tuple[Quantity, Quantity]:
    """The least and the most time that a greedy schedule takes on so many processors (Brent)."""
    share = work / processors
    if isinstance(share, float):
        return max(share, depth), share + depth
    import numpy

    return numpy.maximum(share, depth), share + depth


def work_depth(graph: Graph, step: bool = False) -> WorkDepth:
    """Work and depth of the forward pass, or of the whole step without the optimizer."""
    stages = _stages(graph)
    work = sum(block.times * stage.work(step) for block, row in zip(graph.blocks, stages, strict=True) for stage in row)
    return WorkDepth(work, _longest(graph, stages, step))


class _DepthStage(NamedTuple):
    """One operator of a block: what it waits for, and how deep its parts are (none: it does not run)."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    forward: tuple[int, int]  # work, depth
    input_gradient: tuple[int, int] | None
    weight_gradient: tuple[int, int] | None
    inputs: tuple[int, ...]  # the tensors whose gradients the two parts make
    weights: tuple[int, ...]

    def work(self, step: bool) -> int:
        backward = (self.input_gradient, self.weight_gradient) if step else ()
        return self.forward[0] + sum(part[0] for part in backward if part)


def _stages(graph: Graph) -> list[list[_DepthStage]]:
    """The distinct operators, block by block."""
    return [[_stage(graph, block, node) for node in block.nodes] for block in graph.blocks]


def _stage(graph: Graph, block: Block, node: Node) -> _DepthStage:
    widths = graph.widths(block, node)
    forward, *backward = (node.cost(name, widths) for name in PARTS)
    runs = [
        (part.work, part.depth) if name in node.gradients else None
        for name, part in zip(PARTS[1:], backward, strict=True)
    ]
    weight_operands = node.operator.weight_operands
    return _DepthStage(
        reads=tuple(operand.tensor for operand in node.inputs),
        writes=node.outputs,
        forward=(forward.work, forward.depth),
        input_gradient=runs[0],
        weight_gradient=runs[1],
        inputs=tuple(operand.tensor for operand in node.inputs if operand.name not in weight_operands),
        weights=tuple(operand.tensor for operand in node.inputs if operand.name in weight_operands),
    )


def _longest(graph: Graph, stages: list[list[_DepthStage]], step: bool) -> int:
    """The longest path, walked repetition by repetition: only numbers are unfolded, no operators."""
    runs = _numbered(graph)
    ready = [0] * (1 + max((number for _, numbers in runs for number in numbers), default=0))
    for at, numbers in runs:
        for stage in stages[at]:
            end = max((ready[numbers[read]] for read in stage.reads), default=0) + stage.forward[1]
            for write in stage.writes:
                ready[numbers[write]] = end
    return _backward(stages, runs, ready) if step else max(ready)


def _backward(stages: list[list[_DepthStage]], runs: list[tuple[int, list[int]]], ready: list[int]) -> int:
    """From the forward pass's finishing times, when the last gradient is there.

    A part starts when the operator's own forward is done and its output's gradient is complete. An
    output that nobody reads (the loss) starts by itself.
    """
    gradient = [0] * len(ready)
    for at, numbers in reversed(runs):
        for stage in reversed(stages[at]):
            start = max(max(ready[numbers[write]], gradient[numbers[write]]) for write in stage.writes)
            for part, made in ((stage.input_gradient, stage.inputs), (stage.weight_gradient, stage.weights)):
                if part is None:
                    continue
                for tensor in made:
                    gradient[numbers[tensor]] = max(gradient[numbers[tensor]], start + part[1])
    return max(*ready, *gradient)


def _numbered(graph: Graph) -> list[tuple[int, list[int]]]:
    """For every repetition of every block, its tensors' numbers in the whole graph, imports followed."""
    runs: list[tuple[int, list[int]]] = []
    bases: list[list[int]] = []
    free = 0
    for at, block in enumerate(graph.blocks):
        bases.append([])
        for repetition in range(block.times):
            bases[-1].append(free)
            outside = [_number(entry, bases, repetition) for entry in block.imports]
            runs.append((at, [*range(free, free + len(block.tensors)), *outside]))
            free += len(block.tensors)
    return runs


def _number(entry: Import, bases: list[list[int]], repetition: int) -> int:
    if entry.carried >= 0 and repetition > 0:
        return bases[-1][repetition - 1] + entry.carried
    return bases[entry.block][entry.repetition] + entry.tensor


def greedy_steps(needs: Sequence[Sequence[int]], processors: int) -> int:
    """Steps of a greedy schedule: every step runs as many vertices as are ready, at most `processors`.

    `needs` lists for every vertex the vertices it waits for; every vertex takes one step.
    """
    waiting = [len(before) for before in needs]
    after: list[list[int]] = [[] for _ in needs]
    for vertex, before in enumerate(needs):
        for other in before:
            after[other].append(vertex)
    ready = deque(vertex for vertex, count in enumerate(waiting) if not count)
    steps = done = 0
    while ready:
        running = [ready.popleft() for _ in range(min(processors, len(ready)))]
        for vertex in running:
            for follower in after[vertex]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
        steps, done = steps + 1, done + len(running)
    if done < len(needs):
        raise ValueError("the vertices wait for one another in a circle")
    return steps


def appendix_work(graph: Graph) -> int:
    """The forward work by the rule that gives LeNet the 665,832 of Ben-Nun and Hoefler's appendix.

    Windows sit at every position of the INPUT: a convolution has C_out C_in H W K_y K_x vertices, a
    pooling C H W (K_y K_x - 1), with the input's H and W; a dense layer C_out C_in; the rest nothing.
    Found by search, see studies/lenet_work_depth.
    """
    work = 0
    for block, node in graph.nodes():
        operator, n = node.operator, node.sizes()
        if isinstance(operator, Matmul):
            work += block.times * n["batch"] * n["row"] * n["in"] * n["out"]
        if not isinstance(operator, Convolution | Pool):
            continue
        x = graph.tensor(block, node.inputs[0].tensor)
        positions = n["sample"] * product(dim.size for dim in x.dims[-len(operator.kernel) :])
        if isinstance(operator, Convolution):
            a_position = n["group"] * n["in"] * n["out"] * product(operator.kernel)
        else:
            a_position = n["channel"] * (product(operator.kernel) - 1)
        work += block.times * positions * a_position
    return work
