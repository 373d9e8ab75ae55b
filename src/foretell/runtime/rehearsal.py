"""A rehearsal: one rank of each kind of a run runs here, one after the other, and stands for the whole.

Messages are priced on the cluster that is asked about; kernels, host and allocator are those of this machine. So the
prediction beside it is for that cluster with this machine's device in the place of its own. Where a rank has no room
here, or would take too long, two models with fewer layers are rehearsed: what the program says of the three tells how
far to extend what was measured of the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware import catalog, this_machine
from foretell.hardware.cluster import Cluster, Device
from foretell.model import zoo
from foretell.oracle.predict import Prediction
from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal, refused
from foretell.plan.repair import changed, nearest, removed, replaced, told, with_fields
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import EACH_STEP
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.comparison import as_measured, foreseen
from foretell.runtime.expected import expected
from foretell.runtime.memory_check import begins_with
from foretell.runtime.recording import standing_in
from foretell.units import show_bytes

UNSEEN = (
    "memory of the communication library itself (NCCL's buffers and channels)",
    "multiprocessors and memory bandwidth that real collectives take from kernels",
    "ranks that are late: others are as this one is, or as they are predicted",
)
"""What no rehearsal shows."""

LEAST, FURTHER = 4, 2
"""Layers of the shallower of two models, and how many the other has more. FSDP2 has three layers on its way at once
(one computes, the next is gathered, the gradients of the last are summed): below four a model is not like a deep one
(to eight layers, memory came out 9 % too large from 2 and 4, and to the byte from 4 and 6)."""


class Rehearsed(NamedTuple):
    """What came of a rehearsal: a report of each rank, extended where models were shallower; and why they were."""

    assignment: Assignment
    reports: tuple[Report, ...]
    why: str = ""


def here(assignment: Assignment, asked: Rehearsal) -> Cluster:
    """The cluster of a rehearsal, with the device of this machine; one whose messages take no time where those of the
    rehearsal take none."""
    machine = this_machine.processor() if assignment.device == "cpu" else this_machine.machine().cluster
    return standing_in(catalog.cluster(asked.cluster), machine.device, silent=not asked.priced)


def kinds(setting: Setting) -> tuple[int, ...]:
    """A rank of the first, a middle and the last stage; without a pipeline all are alike."""
    program = expand(lower(setting))
    stride = next((axis.stride for axis in program.axes if axis.name == "pp"), 1)
    last = len(program.kinds) - 1
    return tuple(place * stride for place in sorted({0, last // 2, last}))


def rehearsed(
    assignment: Assignment, ranks: tuple[int, ...], seconds: float, run: Callable[[Assignment], Report]
) -> Rehearsed:
    """Rehearse these ranks, at the depth of the model or at two smaller ones. `seconds` is all that it may take."""
    asked, setting = _asked(assignment), assignment.setting
    _check_room_for_world(setting.plan)
    place = here(assignment, asked)
    broken = functools.partial(_refusals, device=place.device)
    if missing := tuple(broken(setting.plan)):
        raise refused(setting.plan, tuple(told(missing, nearest(setting.plan, broken))))
    if not all(0 <= rank < setting.plan.ranks for rank in ranks):
        what = f"{setting.plan} has ranks 0 to {setting.plan.ranks - 1}, not {max(ranks, key=abs)}"
        raise BadInput(what, where="--rank", fix=f"--rank {setting.plan.ranks - 1}")
    said = foreseen(assignment, place, asked.calibration)
    on_gpu = assignment.device == "cuda" and not setting.plan.policy(Offload).weights  # the host has them whole
    if _in_shares(setting) and (on_gpu or begins_with(setting) > _free(assignment)):
        asked = msgspec.structs.replace(asked, hollow=True)
        assignment = msgspec.structs.replace(assignment, rehearsal=asked)
    why = "" if asked.depths else next(_too_much(assignment, said, len(ranks), seconds), "")
    if why:
        asked = msgspec.structs.replace(asked, depths=_depths(assignment, why))
        assignment = msgspec.structs.replace(assignment, rehearsal=asked)
    extend = _Extended(assignment, asked, said) if asked.depths else None
    reports: list[Report] = []
    for rank in ranks:
        one = msgspec.structs.replace(assignment, rehearsal=msgspec.structs.replace(asked, rank=rank))
        found = extend.report(one, run) if extend else run(one)
        reports.append(msgspec.structs.replace(found, losses=[]))  # of numbers that nobody sent
    return Rehearsed(assignment, tuple(reports), why)


A_RANK = 2_500
"""Bytes of the host for each rank of the world, in torch's lists of groups: 999,424 ranks of `dp124928:zero3 tp8` took
2.3 GiB more than eight do."""


def _check_room_for_world(plan: Plan) -> None:
    size, free = plan.ranks * A_RANK, this_machine.free_bytes()
    if size > free:
        what = f"the lists of {plan.ranks:,} ranks take about {show_bytes(size)}, and {show_bytes(free)} are free"
        raise BadInput(what, where="--plan", fix="a plan of fewer ranks, or foretell predict")


def _refusals(plan: Plan, device: Device) -> Iterator[Refusal]:
    """Why a plan is not rehearsed on a device, whatever its size."""
    yield from _needs_others(plan)
    found = plan.policy(Precision)
    if found.format.kernels != "tf32" and not device.supports(found.format.kernels):
        why = f"+{found.name} multiplies in {found.format.kernels}, of which {device.name} has no figures: nothing is"
        mends = changed(plan, Precision(name="fp32"))
        yield Refusal("a device of this machine", f"{why} predicted beside it", "a machine with a GPU", mends=mends)


def _needs_others(plan: Plan) -> Iterator[Refusal]:
    """Axes on which a rank does what it does by what others send: whose weights it takes, and which inputs come."""
    rule = "a rank alone"
    for axis in plan.axes:
        if any(own.exchange != EACH_STEP for own in axis.axes()):
            why = f"{axis_text(axis)} brings weights of other ranks together, and in a rehearsal there are none"
            yield Refusal(rule, why, mends=removed(plan, axis))
        elif isinstance(axis, Pipeline) and not find(axis.schedule).flushes:
            why = f"{axis_text(axis)} has no step that ends, and takes what other stages send as it comes"
            yield Refusal(rule, why, mends=replaced(plan, axis, with_fields(axis, schedule="1f1b")))


def _asked(assignment: Assignment) -> Rehearsal:
    assert assignment.rehearsal is not None
    return assignment.rehearsal


def _too_much(assignment: Assignment, said: Prediction, ranks: int, seconds: float) -> Iterator[str]:
    """Why a rank is not rehearsed as it is."""
    free, whole = _free(assignment), 0.0 if _asked(assignment).hollow else begins_with(assignment.setting)
    for what, size in (("all weights, which a rank begins with,", whole), ("its step", said.memory.allocated)):
        if size > free:
            yield f"{what} would take {show_bytes(size)}, and {show_bytes(free)} are free"
    needed = said.step_seconds * (assignment.steps + assignment.dropped) * ranks
    if needed > seconds:
        yield f"it would take {needed:,.0f} s, and --timeout is {seconds:g} s"


def _free(assignment: Assignment) -> float:
    """Bytes of the device that a rank can have here."""
    if assignment.device == "cpu":
        return this_machine.free_bytes()
    return this_machine.machine().cluster.device.memory_bytes


def _in_shares(setting: Setting) -> bool:
    """Whether FSDP2 has the weights: it cuts them before they have memory, DistributedDataParallel reads them."""
    data = setting.plan.axis(Data)
    return data is not None and data.world > 1 and data.storage in ("zero2", "zero3")


def _depths(assignment: Assignment, why: str) -> tuple[int, int]:
    """Layers of two shallower models, as many in each stage of a pipeline."""
    layers = layers_of(assignment.model)
    stages = len(expand(lower(assignment.setting)).stages)
    first, second = (-(-least // stages) * stages for least in (LEAST, LEAST + FURTHER))
    second = max(second, first + stages)
    if layers <= second:
        what = f"a rank of {assignment.model} is not rehearsed here: {why}; with {layers} layers it is not shortened"
        raise BadInput(what, where="MODEL", fix="a smaller --batch or --seq, more ranks, or fewer --steps")
    return first, second


def layers_of(model: str) -> int:
    """Layers of a model of the zoo whose text says how many; 0 of others."""
    if model.partition(":")[0] not in zoo.names():
        return 0
    found = getattr(zoo.parse(model)[1], "layers", 0)
    return found if isinstance(found, int) else 0


def with_layers(model: str, layers: int) -> str:
    """The same model with so many layers."""
    name, _, rest = model.partition(":")
    others = [field for field in rest.split(",") if field and field.partition("=")[0].strip() != "layers"]
    return f"{name}:{','.join([*others, f'layers={layers}'])}"


class _Extended:
    """From two shallower models to the one that was asked about, by what the program says of all three."""

    def __init__(self, assignment: Assignment, asked: Rehearsal, said: Prediction) -> None:
        layers = layers_of(assignment.model)
        if len(asked.depths) != 2 or not 0 < asked.depths[0] < asked.depths[1] < layers:
            what = f"depths {', '.join(map(str, asked.depths))} of a model of {layers} layers"
            raise BadInput(what, where="--depths", fix=f"two rising numbers below {layers}: --depths 2,4")
        self._models = [with_layers(assignment.model, depth) for depth in asked.depths]
        shallow = [msgspec.structs.replace(assignment, model=model) for model in self._models]
        place = here(assignment, asked)
        self._low, self._high = (foreseen(one, place, asked.calibration) for one in shallow)
        self._full, self._program = said, expand(lower(assignment.setting))
        first, second = asked.depths
        self._by_layers = (layers - first) / (second - first)

    def report(self, assignment: Assignment, run: Callable[[Assignment], Report]) -> Report:
        low, high = (run(msgspec.structs.replace(assignment, model=model)) for model in self._models)
        said = self._low, self._high, self._full
        parts = [as_measured(one).breakdown for one in said]
        names = {**low.phases, **high.phases}
        step = self._share(*(one.step_seconds for one in said))
        filled = self._share(*(one.memory.allocated for one in said))
        steps = zip(sorted(low.steps), sorted(high.steps), strict=True)
        memory = {
            name: round(getattr(low, name) + (getattr(high, name) - getattr(low, name)) * filled)
            for name in ("allocated", "resting", "reserved")
        }
        return msgspec.structs.replace(
            high,
            steps=[first + (second - first) * step for first, second in steps],
            phases={name: [self._extended(name, low, high, parts)] * len(low.steps) for name in names},
            busy={},
            alive=[],
            collectives=expected(self._program, high.place.get("pp", 0)),
            **memory,
        )

    def _extended(self, name: str, low: Report, high: Report, said: Sequence[Mapping[str, float]]) -> float:
        first, second = (median(one.phases.get(name, [0.0])) for one in (low, high))
        return max(0.0, first + (second - first) * self._share(*(one.get(name, 0.0) for one in said)))

    def _share(self, first: float, second: float, full: float) -> float:
        """How many times as far it is from the first to the whole as to the second; where the program sees no
        difference, as many as there are layers."""
        return (full - first) / (second - first) if abs(second - first) > 1e-9 * max(full, 1e-9) else self._by_layers
