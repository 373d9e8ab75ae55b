"""Plans as rows of the engine's tables. Nobody else writes such rows: `predict` adds one plan, the search a mesh of
them at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretell.cost.memory import MemoryConstants
from foretell.cost.price import PricedProgram
from foretell.hardware.cluster import Cluster
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import multiprocessors
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.trainer import Trainer
from foretell.program.partition import PipelinePartition
from foretell.program.rank_program import BlockKind
from foretell.timeline.columns import PLAN_COLUMNS, Plans, plan_rows
from foretell.timeline.tables import SignatureRow, TableBuilder
from foretell.timeline.unroll import UnrolledSchedule, unrolled_schedule
from foretell.units import Quantity


def unrolled(plan: PricedProgram, whole: bool = False) -> UnrolledSchedule:
    """The slots of a plan, cut short where its pipeline is full, or of its whole step."""
    program = plan.program
    return unrolled_schedule(program.schedule, program.ranks, program.plan.microbatches, program.chunks, whole)


class PlanRow(NamedTuple):
    """Where the parts of a plan stand in the tables, and figures of its own: numbers, or arrays of them for many plans.

    Rows of rank programs, sends and peaks are those of the first micro-batch size that was priced; those of the others
    follow, `size` rows later of each stage signature.
    """

    program: Quantity
    partition: Quantity
    sends: Quantity
    peaks: Quantity
    traffic: Quantity
    launch_profile: Quantity
    overlap: Quantity
    splits: Quantity  # whether backward passes are in two parts
    unrolled: dict[str, Any]  # orders, moments and rounds
    constants: MemoryConstants
    size: Quantity = 0
    signatures: Quantity = 1

    def columns(self) -> dict[str, Any]:
        """A row for each plan, by the names of the engine's columns."""
        later = self.size * self.signatures
        return {
            "program": self.program + self.size,
            "partition": self.partition,
            "sends": self.sends + later,
            "peaks": self.peaks + later,
            "traffic": self.traffic,
            "launch_profile": self.launch_profile,
            "overlap": self.overlap,
            "splits": self.splits,
            **self.unrolled,
            **self.constants._asdict(),
        }


class PlanTable(TableBuilder):
    """The parts of plans on one cluster, each written down once, and rows of plans."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__([level.name for level in cluster.levels])
        self.cluster = cluster
        self.rows: dict[str, list[Any]] = defaultdict(list)

    def add(self, plan: PricedProgram, stages: Sequence[int] = (), steps: UnrolledSchedule | None = None) -> int:
        """Add a plan; its row. `stages`: the signatures of its stages, `steps`: its unrolled schedule, if others."""
        program, trainer = plan.program, plan.prices.trainer
        row = PlanRow(
            self.program(list(plan.kinds.values())),
            self.stages(program.partition, tuple(plan.kinds), stages or plan.stages),
            self.sends(plan.sends),
            self.peaks((plan.peaks, 0)),
            self.traffic(plan.traffic),
            self.launches(program.plan, trainer, program.ranks > 1),
            plan.overlap,
            program.schedule.splits_backward,
            self.unrolled(steps or unrolled(plan)),
            plan.constants,
        )
        for name, value in row.columns().items():
            self.rows[name].append(value)
        return len(self.rows["program"]) - 1

    def stages(self, partition: PipelinePartition, kinds: Sequence[BlockKind], stages: Sequence[int] = ()) -> int:
        """The row of a partition whose kinds of layers are numbered like this; `stages`: signatures, if others."""
        number = {kind: at for at, kind in enumerate(kinds)}
        rows = [
            SignatureRow(
                [(number[kind], times) for kind, times, *_ in signature.layers],
                layers,
                bool(signature.received),
                signature.gets_back,
            )
            for signature, layers in zip(partition.signatures, partition.layers, strict=True)
        ]
        return self.partition(rows, stages or partition.stage_signatures)

    def launches(self, plan: Plan, trainer: Trainer, pipelined: bool) -> int:
        """The row of how a trainer launches a plan, as the plan has it run."""
        tensor = plan.axis(Tensor)
        ranks, across = tensor.ranks if tensor else 1, pipelined and self.cluster.nodes > 1
        held = multiprocessors(plan, trainer) / self.cluster.device.multiprocessors
        return self.launch_profile(
            (trainer, ranks, across, held), trainer.host, ranks, across, trainer.storage.prefetch, held
        )

    def plans(self, compiled: bool) -> Plans:
        """The rows that were added, for Python or for a compiler."""
        return plan_rows({name: self.rows[name] for name in PLAN_COLUMNS}, compiled)
