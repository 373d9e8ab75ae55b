"""The program: one step under one plan, folded. Prices, timelines and searches start here.

Stages that do the same are one signature, and equal layers are one kind: a stage is a row of kinds with how often each
is taken, and what ranks do when is the schedule's. `program.expand` writes every stage and every slot out, for those
who look at them or run them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from foretell.model.graph import Graph
from foretell.plan.axis_names import AxisName
from foretell.plan.plan import Plan
from foretell.plan.schedule import Schedule
from foretell.plan.setting import Setting
from foretell.plan.strategy import MeshAxis
from foretell.plan.trainer import Trainer
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.boundary import CutTensor, cuts
from foretell.program.expanded import Axis
from foretell.program.mesh import stride
from foretell.program.partition import Key, PipelinePartition
from foretell.program.rank_program import RankProgram
from foretell.program.sharding.layout import Layout
from foretell.program.stage_activations import activation_peaks
from foretell.program.stage_weights import UnitBytes
from foretell.program.weight_state import WeightStatePlan
from foretell.program.weights import Weight


@dataclass(frozen=True)
class Program:
    """One plan for one model."""

    setting: Setting
    axes: tuple[MeshAxis, ...]
    graph: Graph  # a block for each layer, or for equal ones
    partition: PipelinePartition  # of its layers into stages
    rank_program: RankProgram  # what a rank does with one micro-batch, kind of layer by kind of layer
    weight_state: WeightStatePlan  # how weights, gradients and optimizer states lie and travel

    @property
    def plan(self) -> Plan:
        return self.setting.plan

    @property
    def trainer(self) -> Trainer:
        return self.setting.trainer

    @property
    def schedule(self) -> Schedule:
        return self.partition.schedule

    @property
    def ranks(self) -> int:
        """Of the pipeline."""
        return self.partition.ranks

    @property
    def chunks(self) -> int:
        """Stages of each rank of the pipeline."""
        return self.partition.chunks

    @property
    def layout(self) -> Layout:
        return self.rank_program.layout

    @functools.cached_property
    def mesh(self) -> tuple[Axis, ...]:
        return tuple(self._axis(axis) for axis in self.axes)

    def _axis(self, axis: MeshAxis) -> Axis:
        exchange = axis.exchange
        apart = stride(self.axes, (axis.name,))
        return Axis(axis.name, axis.ranks, apart, exchange.waits, exchange.staleness, self.divides(axis.name))

    def divides(self, name: str) -> bool:
        """Whether an axis divides any operator; the pipeline always does."""
        if name == AxisName.PP or name in self.weight_state.plain:
            return True
        return any(any(one.places.values()) for one in self.layout.spreads if one.axis.name == name)

    @functools.cached_property
    def cuts(self) -> tuple[tuple[CutTensor, ...], ...]:
        """For each part what crosses into it."""
        return cuts(self.layout, self.partition.row.crossings)

    def own(self, at: int) -> list[Weight]:
        """The weights that a stage has to care for."""
        return self.partition.weights(self.rank_program, at, self.weight_state, folded=False)

    def holders(self, at: int, own: Sequence[Weight]) -> dict[Key, frozenset[int]]:
        """The pipeline ranks that have each of a stage's weights."""
        return self.partition.holders(at, own)

    def peaks(self, at: int, gathered: tuple[UnitBytes, ...] = ()) -> StagePeaks:
        """What a micro-batch holds on a stage, where gradients of weights have their own place."""
        own = self.partition.signature_runs[self.partition.stage_signatures[at]]
        return activation_peaks(
            self.rank_program, own, self.plan, WeightBuffers(gathered, self.weight_state.reshards), self.ranks > 1
        )
