"""Joules of a step of a plan: what the kernels of every rank draw, and what ranks draw while they wait."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from foretell.cost.energy import MEASURED_ON, above_idle, drawn, of_updates
from foretell.cost.kernels import chains, kernel_seconds
from foretell.cost.price import PricedProgram
from foretell.oracle.predict import Prediction
from foretell.plan.policies.offload import Offload
from foretell.program.action import Compute
from foretell.program.rank_program import BlockKind, kind_of


class StepEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """What the devices of a step draw; not their hosts, switches and cooling."""

    joules: float  # of all devices in a step
    step_seconds: float
    watts: float  # of one device, in the mean
    limit: float  # watts that it may draw
    samples_per_joule: float
    tokens_per_joule: float  # 0 where samples are no sequences
    origin: str  # "measured", or "carried over" from the device whose loads were measured


def step_energy(plan: PricedProgram, found: Prediction) -> StepEnergy | None:
    """The energy of a predicted step; None where devices are processors, of which no power was measured."""
    program, device = plan.program, plan.prices.device
    if device.is_processor:
        return None
    ranks = math.prod(axis.ranks for axis in program.mesh)
    on_host = program.plan.policy(Offload).optimizer  # where the device waits
    updates = 0.0 if on_host else of_updates(found.breakdown.get("optimizer", 0.0), device) * ranks
    energy = drawn(device, found.step_seconds, ranks, [*_kernels(plan), updates])
    return StepEnergy(
        joules=energy.joules,
        step_seconds=found.step_seconds,
        watts=energy.watts,
        limit=device.power_watts,
        samples_per_joule=found.batch / energy.joules,
        tokens_per_joule=found.tokens_per_second * found.step_seconds / energy.joules,
        origin="measured" if device.name == MEASURED_ON else "carried over",
    )


def _kernels(plan: PricedProgram) -> Iterator[float]:
    """Joules of the kernels of each stage, on all the ranks that share it, in a step."""
    program = plan.program
    beside = math.prod(axis.ranks for axis in program.mesh) // program.ranks
    each = program.plan.microbatches * len(program.partition.row.parts) / program.partition.count
    known: dict[BlockKind, float] = {}
    for stage in range(program.partition.count):
        for run in program.partition.runs(stage):
            kind = kind_of(run)
            if kind not in known:
                known[kind] = _kind(plan, kind)
            yield known[kind] * run.times * each * beside


def _kind(plan: PricedProgram, kind: BlockKind) -> float:
    """Joules of one micro-batch in a kind of layer, both passes."""
    prices = plan.prices
    device, form, trainer = prices.device, prices.form, prices.trainer
    total = 0.0
    for actions in plan.program.rank_program.actions(kind):
        for action in chains(actions, trainer.execution, trainer.fusion.norms_take_in, trainer.fusion.complex_rotary):
            if isinstance(action, Compute):
                seconds = float(kernel_seconds(action, device, form, trainer).seconds)
                total += float(above_idle(action, seconds, device, form))
    return total
