"""What each rank holds in memory at its fullest moment, from the lifetimes of its program.

What is there for the whole step (weights, gradients, states) and, slot by slot, the activations of
the micro-batches in flight with what the slot itself needs. Then from tensors to what is reserved and
what the device reports. The terms and their constants are those of the trainer, with their sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.trainer import look_up_depth
from foretell.program.program import Program, RankKind
from foretell.units import product


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes of the worst rank, as tensors take them, as the allocator reserves them, as the device reports them."""

    allocated: float
    reserved: float
    device: float
    least: float  # of `device`, when streams hold nothing back: what the allocator can come down to
    by_stage: tuple[float, ...]  # device bytes of each pipeline rank
    by_kind: dict[str, float]  # of the worst rank at its peak, adding up to `device`
    peak_moment: str


class Moment(NamedTuple):
    """The fullest moment of one rank: bytes by kind, and when it is."""

    when: str
    kinds: dict[str, float]

    @property
    def allocated(self) -> float:
        return sum(self.kinds.values())


def memory(program: Program, setting: Setting, capacity: float = math.inf) -> MemoryUse:
    """The worst rank's memory. Of what streams hold back the allocator frees what would not fit into `capacity`."""
    free = [_without_held(_fullest(program, setting, kind)) for kind in program.kinds]
    least = max(_device(setting, program, moment.allocated) for moment in free)
    moments = [_fitted(_fullest(program, setting, kind), setting, program, capacity) for kind in program.kinds]
    device = [_device(setting, program, moment.allocated) for moment in moments]
    worst = max(range(len(device)), key=lambda at: device[at])
    moment = moments[worst]
    reserved = moment.allocated * setting.trainer.memory.reserved
    kinds = {**moment.kinds, "allocator": reserved - moment.allocated, "context": device[worst] - reserved}
    return MemoryUse(
        allocated=moment.allocated,
        reserved=reserved,
        device=device[worst],
        least=least,
        by_stage=tuple(device),
        by_kind=kinds,
        peak_moment=moment.when if len(program.kinds) == 1 else f"{moment.when} on pipeline rank {worst}",
    )


HELD = "held by streams"


def _without_held(moment: Moment) -> Moment:
    return moment._replace(kinds={name: size for name, size in moment.kinds.items() if name != HELD})


def _fitted(moment: Moment, setting: Setting, program: Program, capacity: float) -> Moment:
    """The moment with as much held back as there is room for."""
    over = _device(setting, program, moment.allocated) - capacity
    held = moment.kinds.get(HELD, 0.0)
    if over <= 0 or not held:
        return moment
    kept = max(0.0, held - over / setting.trainer.memory.reserved)
    return moment._replace(kinds={**moment.kinds, HELD: kept})


def _device(setting: Setting, program: Program, allocated: float) -> float:
    """What the device reports: the allocator's pool, the context, and communicators where there are several ranks."""
    alive = setting.trainer.memory
    communicators = alive.communicator if program.axes else 0.0
    return allocated * alive.reserved + alive.context + communicators


def _fullest(program: Program, setting: Setting, kind: RankKind) -> Moment:
    """The fullest of: a slot of the step, and the gathering of weights after the update."""
    resting = _resting(program, setting, kind)
    parameters = sum(program.stages[stage].memory.parameters for stage in kind.stages)
    peak = max(_slots(program, setting, kind), key=lambda moment: moment.allocated)
    alive = setting.trainer.memory
    shares = _stored_in_shares(setting)
    working = {**resting, **peak.kinds}
    if shares:
        working["cached gradients"] = alive.cached_gradients * parameters
    after = {**resting, "gathered weights": alive.gather * parameters} if shares else resting
    return max(Moment(peak.when, working), Moment("the gathering of weights after the update", after), key=_size)


def _size(moment: Moment) -> float:
    return moment.allocated


def _resting(program: Program, setting: Setting, kind: RankKind) -> dict[str, float]:
    """What is there all the time."""
    stages = [program.stages[stage].memory for stage in kind.stages]
    stored = setting.trainer.storage
    parameters = sum(stage.parameters for stage in stages)
    data = product(axis.ranks for axis in program.axes if axis.name in ("dp", "shard", "ep"))
    kinds = {
        "weights": sum(stage.weights for stage in stages),
        "gradients": sum(stage.gradients for stage in stages),
        "states": sum(stage.states for stage in stages),
    }
    if data > 1 and not _stored_in_shares(setting):
        kinds["buckets"] = stored.buckets * parameters
    extra = (stored.extra + stored.extra_shared / data) * parameters
    if extra:
        kinds["trainer's copies"] = extra
    return kinds


def _stored_in_shares(setting: Setting) -> bool:
    data = setting.plan.axis("dp")
    return data is not None and data.world > 1 and STORAGES[getattr(data, "storage", "replicated")].states


def _slots(program: Program, setting: Setting, kind: RankKind) -> Iterator[Moment]:
    """The rank's memory in each of its slots: what is in flight, and what the slot needs besides."""
    held = 0.0
    stored = setting.trainer.storage
    parameters = sum(program.stages[stage].memory.parameters for stage in kind.stages)
    streams = _held_back(program, setting)
    for slot in kind.slots:
        stage = program.stages[slot.stage].memory
        forward = slot.kind == "F"
        peak = stage.forward_peak if forward else stage.backward_peak
        flying = held if forward else held - stage.kept
        kinds = {"activations": flying + stage.kept, "working": max(0.0, peak - stage.kept)}
        if streams:
            kinds[HELD] = streams
        name = {"F": "forward", "B": "backward", "I": "backward", "W": "weight gradients"}[slot.kind]
        yield Moment(f"the {name} pass of micro-batch {slot.microbatch}", kinds)
        if not forward and stored.transient_gradient:  # all there when the slot's activations are gone
            left = {"activations": flying, "new gradients": stored.transient_gradient * parameters}
            if streams:
                left[HELD] = streams
            yield Moment(f"the end of the {name} pass of micro-batch {slot.microbatch}", left)
        held += stage.kept if forward else -stage.kept if slot.kind in ("B", "W") else 0.0
    if not kind.slots:
        yield Moment("the step", {})


def _held_back(program: Program, setting: Setting) -> float:
    """Buffers of tensor-parallel communication that streams have not given back (a trainer's constant)."""
    tensor = setting.plan.axis(Tensor)
    pipeline = setting.plan.axis(Pipeline)
    if tensor is None or tensor.ranks == 1:
        return 0.0
    each = look_up_depth(setting.trainer.memory.held, pipeline.ranks if pipeline else 1)
    return each * _hidden_elements(setting) if each else 0.0


def _hidden_elements(setting: Setting) -> float:
    """Tokens of a rank's micro-batch times hidden units: the elements that go from layer to layer."""
    graph = setting.graph
    repeated = [block for block in graph.blocks if block.times > 1 and any(e.carried >= 0 for e in block.imports)]
    if not repeated:
        return 0.0
    block = max(repeated, key=lambda one: one.times)
    number = next(entry.carried for entry in block.imports if entry.carried >= 0)
    split = product(axis.ranks for s in setting.plan.axes for axis in s.axes() if axis.splitting.dim)
    return graph.tensor(block, number).elements() / split
