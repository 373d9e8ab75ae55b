"""The layers of a stage as runs of equal ones, and stages that differ in the length of one run alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers
from foretell.program.allocation_trace import PLAYED, longest
from foretell.units import whole_numbers


class StageRuns:
    """The runs of layers of a stage, and what is asked of them for every local program."""

    def __init__(self, graph: Graph, runs: tuple[EqualLayers, ...]) -> None:
        self.runs = runs
        long = longest(runs) if runs else -1
        self.times = runs[long].times if runs else 0
        self.layers = sum(run.times for run in runs if run.layer)
        self.stackable = self.times > PLAYED and bool(runs[long].layer)
        self.alike = tuple(
            (
                (*run[:3], run.spared),
                min(run.times, PLAYED + 1) if at == long else run.times,
                run.first == 0,
                run.first + run.times == graph.blocks[run.block].times,
            )
            for at, run in enumerate(runs)
        )
        """Stages that hold the same; the longest run is told apart by what it has at least."""
        self.inputs = _inputs(graph, runs)
        between = tuple(run for run in runs if not run.layer)
        self.between = self if between == runs else StageRuns(graph, between)


class StackedRuns:
    """Stages that are alike but for how often their longest run, of layers, repeats: for each number a row."""

    def __init__(self, one: StageRuns, times: Sequence[int]) -> None:
        self.runs, self.alike, self.inputs, self.between = one.runs, one.alike, one.inputs, one.between
        self.times = whole_numbers(times)[:, None]
        self.layers = self.times + (one.layers - one.times)


class Uneven(Exception):
    """The layers of a long run do not all add the same, so stages of more of them cannot be told from a few."""


def _inputs(graph: Graph, runs: Iterable[EqualLayers]) -> frozenset[tuple[int, int]]:
    """The samples that a stage is given: tensors of the first block, which none of its layers makes."""
    found: set[tuple[int, int]] = set()
    for run in runs:
        for node in graph.blocks[run.block].nodes[run.start : run.stop]:
            homes = (graph.home(run.block, operand.tensor)[:2] for operand in node.inputs)
            found.update(home for home in homes if graph.blocks[home[0]].tensors[home[1]].role == "input")
    return frozenset(found)
