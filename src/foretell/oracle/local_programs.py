"""Local programs of a space: what the ranks do that divide layers, priced for all numbers of samples at once.

Of all parts of plans these take longest to price. Arrays of numbers of samples keep figures exactly up to some size;
larger micro-batches are priced one by one, and for bounds, where last digits do not count, together with the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy

from foretell.cost.layer_cost import layer_cost
from foretell.cost.memory import convolution_block
from foretell.cost.prices import Prices
from foretell.model.graph import Graph
from foretell.model.resize import SAMPLE
from foretell.oracle.lower_bounds import LayerSeconds, layer_seconds, layer_waits
from foretell.plan.plan import Plan
from foretell.plan.policy import Policy
from foretell.plan.recomputation import Recomputation
from foretell.plan.strategy import MeshAxis
from foretell.plan.trainer import Trainer
from foretell.program.lower import local_program, spread_alike
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.timeline.plan_table import PlanTable
from foretell.units import product

EXACT = 2**53
"""Real numbers keep whole ones up to here: models with larger figures for one operator are not priced as arrays."""

ROUGH = 512
"""How many times as large figures may be where last digits do not count: they still fit whole numbers of an array."""


class PolicySet(NamedTuple):
    """A set of policies, and a number for what of it each part of a plan asks for."""

    policies: tuple[Policy, ...]
    plan: Plan  # of these policies alone
    local: int  # what local programs depend on
    held: int  # and what is held of a micro-batch
    care: int  # and the care of weights
    execution: int  # and the way of launching


class Executed(NamedTuple):
    """A trainer as policies have it run, and seconds of messages that were priced with it."""

    number: int
    trainer: Trainer
    messages: dict[Any, Any]


class LoweredModel(NamedTuple):
    """A model as programs refer to it."""

    number: int
    graph: Graph
    kinds: tuple[BlockKind, ...]
    exact: int  # samples whose figures arrays keep exactly
    spares: Recomputation | None  # that leaves some layers of a stage as they are


class Programs(NamedTuple):
    """A local program for several numbers of samples: a row each, from `row` on."""

    row: int
    place: dict[int, int]  # of each number of samples: how many rows after the first
    parts: tuple[tuple[RankProgram, int], ...]  # of how many numbers at once; 0: of one alone
    layouts: int  # a number, the same for programs that differ in what runs again


class LocalQuestion(NamedTuple):
    """What a local program depends on."""

    model: LoweredModel
    axes: tuple[MeshAxis, ...]  # that divide layers
    chosen: PolicySet
    executed: Executed
    prices: Prices
    samples: tuple[int, ...]  # that a rank of the mesh may have in a micro-batch
    where: int  # a number for the model, the axes and where they lie

    @property
    def together(self) -> int:
        """Ranks whose samples a local program has together."""
        return product(axis.ranks for axis in self.axes if axis.splitting.dim == SAMPLE)


class LocalPart(NamedTuple):
    """A local program for some numbers of samples."""

    local: RankProgram
    several: int  # how many at once; 0: one alone
    samples: tuple[int, ...]


class RoughPrograms:
    """The same for bounds alone: all numbers of samples as arrays, whose last digits may be others.

    Priced when that is asked for: messages say of most ways to divide layers that they cannot win.
    """

    def __init__(self, number: int, asked: LocalQuestion, parts: Sequence[LocalPart]) -> None:
        self.number, self.place, self.parts = number, _places(parts), tuple(parts)
        self._kinds, self._prices = asked.model.kinds, asked.prices

    @functools.cached_property
    def seconds(self) -> LayerSeconds:
        """Of its layers, for each number of samples."""
        costs = [[layer_cost(local, kind, self._prices) for kind in self._kinds] for local, *_ in self.parts]
        return layer_seconds(costs, [several for _, several, _ in self.parts])

    @functools.cached_property
    def waits(self) -> Any:
        """The same of messages that nothing hides: a row for each kind of layer."""
        each = (layer_waits(local, self._kinds, self._prices, several) for local, several, _ in self.parts)
        return numpy.concatenate(list(each), axis=1)


class LocalPrograms:
    """Those of a space, found when they are asked for: rows of the table, and rougher ones for bounds."""

    def __init__(self, table: PlanTable, samples: tuple[int, ...], numbered: Callable[[Hashable], int]) -> None:
        self.table, self.samples, self.numbered = table, samples, numbered
        self._programs: dict[Hashable, Programs] = {}
        self._rough: dict[Hashable, RoughPrograms] = {}

    def programs(self, asked: LocalQuestion, wanted: Sequence[int]) -> Programs:
        """A local program on the axes that divide layers, for these numbers of samples at least."""
        most = asked.model.exact // asked.together
        sides = {count <= most for count in wanted}  # those that arrays keep exactly, and others
        samples = tuple(count for count in self._samples(asked) if (count <= most) in sides)
        key = (asked.where, asked.chosen.local, asked.executed.number, asked.prices.splits, samples)
        if key not in self._programs:
            row, parts = len(self.table.columns["program_at"]), self._locals(asked, samples, asked.model.exact)
            for local, several, _ in parts:
                self.table.program([layer_cost(local, kind, asked.prices) for kind in asked.model.kinds], several)
            layouts = self.numbered(tuple(id(local.layout) for local, *_ in parts))
            each = tuple((local, several) for local, several, _ in parts)
            self._programs[key] = Programs(row, _places(parts), each, layouts)
        return self._programs[key]

    def roughly(self, asked: LocalQuestion) -> RoughPrograms:
        """The same for bounds, of all numbers of samples."""
        samples = self._samples(asked)
        key = (asked.where, asked.chosen.local, asked.executed.number, asked.prices.splits, samples)
        if key not in self._rough:
            parts = self._locals(asked, samples, ROUGH * asked.model.exact)
            self._rough[key] = RoughPrograms(len(self._rough), asked, parts)
        return self._rough[key]

    def _samples(self, asked: LocalQuestion) -> tuple[int, ...]:
        """For which numbers of samples a program is priced at once, since other meshes ask for the same: all of the
        space that ranks divide which have samples together."""
        shared = math.gcd(*asked.samples) if any(axis.splitting.shares_samples for axis in asked.axes) else 1
        return tuple(count for count in self.samples if count % shared == 0)

    def _locals(self, asked: LocalQuestion, samples: Sequence[int], most: int) -> list[LocalPart]:
        """As many at once as differ in sizes alone; those above `most`, with all ranks, one by one."""
        model, axes, plan, trainer = asked.model, asked.axes, asked.chosen.plan, asked.executed.trainer
        block, together = convolution_block(self.table.cluster), asked.together
        many = [count * together for count in samples if count * together <= most]
        alone = [count * together for count in samples if count * together > most]
        return [
            LocalPart(
                local_program(model.graph, axes, plan, trainer, own, block),
                0 if isinstance(own, int) else len(own),
                tuple(count // together for count in ((own,) if isinstance(own, int) else own)),
            )
            for own in (*spread_alike(model.graph, axes, plan, trainer, many), *alone)
        ]


def _places(parts: Sequence[LocalPart]) -> dict[int, int]:
    """How many rows after the first that of each number of samples is."""
    return {count: at for at, count in enumerate(count for part in parts for count in part.samples)}
