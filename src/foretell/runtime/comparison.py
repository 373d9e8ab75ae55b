"""What was predicted for a run, what was measured, and the difference of the two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from foretell.cost.allocator import reserved_bytes
from foretell.cost.price import priced
from foretell.cost.samples import MeasuredMachine
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import CALM, Disturbance
from foretell.learning.tempo import Tempo
from foretell.model.source import kept
from foretell.oracle.calibrations import with_calibration
from foretell.oracle.disturbed import predict_disturbed, stage_of, with_wait
from foretell.oracle.explain import Bottleneck
from foretell.oracle.mixed import with_microbatches, with_shares
from foretell.oracle.predict import Prediction
from foretell.plan.job import own_counts
from foretell.plan.strategies.data import Data
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.program.lower import lower
from foretell.records.doubts import impossible
from foretell.records.record import Record
from foretell.runtime.assignment import Assignment, Collective, Report
from foretell.runtime.expected import expected, whenever
from foretell.runtime.limits import limits
from foretell.runtime.measure import Measurement, check
from foretell.runtime.outside import Outside, outside
from foretell.runtime.recording import HERE, cluster_of, standing_in
from foretell.timeline.simulate import Simulated, simulate


class Difference(msgspec.Struct, frozen=True):
    """Predicted less measured, in the keys of an observation; `relative` are shares of what was measured."""

    step_seconds: float
    memory_bytes: float
    breakdown: dict[str, float]
    relative: dict[str, float]


class TrafficMismatch(msgspec.Struct, frozen=True):
    """Collectives that only one side has. Both empty: what ran is what the program said."""

    unexpected: tuple[Collective, ...]
    missing: tuple[Collective, ...]


class Comparison(msgspec.Struct, frozen=True):
    predicted: Prediction
    measured: Measurement
    error: Difference
    collectives: TrafficMismatch
    outside: tuple[Outside, ...] = ()  # phases and ranks outside their band
    limits: tuple[Bottleneck, ...] = ()  # of the measured step, by the rules of a prediction


def compared(
    assignment: Assignment,
    measured: Measurement,
    place: int,
    where: Cluster,
    calibration: str = "",
    places: tuple[int, ...] = (),
    disturbed: bool = False,
) -> Comparison:
    """Predict what was run, as the machine was calibrated, and subtract.

    `place` is the critical rank's, of stages, and `places` are those of all ranks. What was made to go wrong is not
    predicted, so that it is found, unless somebody wants to see it `disturbed`.
    """
    predicted = as_measured(foreseen(assignment, where, calibration, assignment.disturbance if disturbed else CALM))
    program = lower(assignment.setting)
    if not where.device.is_processor:
        kept = reserved_bytes(program, place, predicted.memory.allocated)
        predicted = msgspec.structs.replace(predicted, memory=msgspec.structs.replace(predicted.memory, reserved=kept))
    found = traffic(expand(program), place, measured.collectives)
    stages = places or (0,) * measured.ranks
    beyond = outside(predicted, measured, stages)
    named = limits(predicted, measured, stages, beyond)
    return Comparison(predicted, measured, _difference(predicted, measured), found, beyond, named)


def as_measured(found: Prediction) -> Prediction:
    """A prediction by the phases of a run, whose backward pass has what runs again in it."""
    again = found.breakdown.get("recompute", 0.0)
    if not again:
        return found
    parts = {name: seconds for name, seconds in found.breakdown.items() if name != "recompute"}
    return msgspec.structs.replace(found, breakdown={**parts, "backward": parts.get("backward", 0.0) + again})


def foreseen(
    assignment: Assignment, where: Cluster, calibration: str = "", disturbance: Disturbance = CALM
) -> Prediction:
    """What is predicted of a run on a cluster that can have been its own."""
    setting = assignment.setting
    parts = in_equal_parts(assignment)
    if len(parts) > 1:  # all wait for those that take longest
        each = [foreseen(part, where, calibration, _of_ranks(disturbance, own)) for own, part in parts]
        return max(each, key=lambda found: found.step_seconds)
    if setting.plan.ranks > where.ranks:
        what = f"{setting.plan} has {setting.plan.ranks} ranks, and {where.text} has {where.ranks}: they share cores"
        raise BadInput(what, where="--on", fix="fewer ranks, or --on the cluster it runs on")
    if (assignment.device == "cpu") != (where.device.is_processor):
        what = f"ranks compute on {assignment.device}, and {where.text} has {where.device.name}"
        raise BadInput(what, where="--on", fix=f"--on {HERE}, which is the default")
    known = with_calibration(setting, where, calibration)
    found = _at_pace(predict_disturbed(known.setting, known.cluster, disturbance), assignment.tempo)
    return msgspec.structs.replace(found, notes=(*known.notes, *found.notes))


def in_equal_parts(assignment: Assignment) -> list[tuple[tuple[int, ...], Assignment]]:
    """A run whose ranks have unequal shares as runs of all ranks with as many samples as some of them have."""
    plan = assignment.setting.plan
    data = plan.axis(Data)
    if data is None or not data.shares:
        return [(tuple(range(plan.ranks)), assignment)]
    counts = own_counts(data, plan.microbatches, assignment.setting.job.batch)
    found: list[tuple[tuple[int, ...], Assignment]] = []
    for samples, count in dict.fromkeys(counts):
        own = tuple(rank for rank, one in enumerate(counts) if one == (samples, count))
        equal = str(with_microbatches(with_shares(plan, ()), int(count)))
        found.append((own, msgspec.structs.replace(assignment, plan=equal, batch=int(samples) * data.world)))
    return found


def _of_ranks(found: Disturbance, own: tuple[int, ...]) -> Disturbance:
    """What goes wrong, but for slow ranks that are none of these."""
    return msgspec.structs.replace(found, ranks=tuple(one for one in found.ranks if one.rank in own))


GRADIENT = ("input", "forward", "backward", "recompute", "host")
"""What a gradient takes of a step; the rest of its pace is waited for."""


def _at_pace(found: Prediction, tempo: Tempo) -> Prediction:
    """A step whose gradients are made to take so long, in the mean."""
    wait = tempo.mean - sum(found.breakdown.get(name, 0.0) for name in GRADIENT)
    if wait <= 0:
        return found
    longer = with_wait(found, wait)
    share = wait / longer.step_seconds
    why = f"gradients are made to take {tempo.mean * 1e3:.3g} ms by waiting: {share:.0%} of the step"
    told = Bottleneck("pace", "limit", share, why, "a run without --pace")
    return msgspec.structs.replace(longer, bottlenecks=(told, *longer.bottlenecks))


COMPUTING = {"forward": "forward", "backward": "backward", "recompute": "backward", "optimizer": "optimizer"}
"""The phase of a run in which each kind of computing is done."""


def computing(assignment: Assignment, where: Cluster, calibration: str = "") -> tuple[dict[str, float], ...]:
    """Seconds that each rank computes in each phase of a step, as they are predicted."""
    setting = assignment.setting
    parts = in_equal_parts(assignment)
    if len(parts) > 1:
        found = {rank: computing(part, where, calibration)[rank] for own, part in parts for rank in own}
        return tuple(found[rank] for rank in range(setting.plan.ranks))
    known = with_calibration(setting, where, calibration)
    places: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COMPUTING.values(), 0.0))
    for event in simulate(priced(known.setting, known.cluster), joined=True).events:
        if event.category in COMPUTING:
            places[event.kind][COMPUTING[event.category]] += event.seconds
    return tuple(places[stage_of(setting, rank)] for rank in range(setting.plan.ranks))


def traffic(program: ExpandedProgram, place: int, counted: Iterable[Collective]) -> TrafficMismatch:
    """Where what a rank at a place of the pipeline did differs from what the program says."""
    said, ran = expected(program, place), whenever(counted)
    return TrafficMismatch(_beyond(ran, said), _beyond(said, ran))


def _beyond(ones: Iterable[Collective], others: Iterable[Collective]) -> tuple[Collective, ...]:
    """Those of one side that the other has not, or has fewer of: as many as are too many."""
    there = {_alike(one): one.count for one in others}
    left = (msgspec.structs.replace(one, count=one.count - there.get(_alike(one), 0)) for one in ones)
    return tuple(one for one in left if one.count > 0)


def _alike(one: Collective) -> tuple[str, tuple[str, ...], int, int]:
    return one.kind, one.axes, one.ranks, one.payload


def _difference(predicted: Prediction, measured: Measurement) -> Difference:
    step = predicted.step_seconds - measured.step_seconds
    memory = predicted.memory_bytes - measured.memory_bytes
    allocated = predicted.memory.allocated - measured.memory.allocated
    keys = dict.fromkeys([*predicted.breakdown, *measured.breakdown])
    parts = {key: predicted.breakdown.get(key, 0.0) - measured.breakdown.get(key, 0.0) for key in keys}
    relative = {
        "step_seconds": step / measured.step_seconds,
        "memory_bytes": memory / measured.memory_bytes,
        "allocated": allocated / measured.memory.allocated,
        "reserved": predicted.memory.reserved / measured.memory.reserved - 1,
    }
    return Difference(step, memory, parts, relative)


class RunRecord(NamedTuple):
    """What the record of a run says: what was asked, what came out, and where."""

    assignment: Assignment
    measured: Measurement
    place: int  # of the critical rank, on the pipeline
    places: tuple[int, ...]  # of all ranks
    cluster: Cluster


def ran(found: Record, where: str, cluster: str = "") -> RunRecord:
    """A record as a run, on the cluster that it names or another one."""
    if found.kind != "run":
        raise BadInput(f"a record of a {found.kind}, not of a run", where=where, fix="a file that `foretell run` wrote")
    for why in impossible(msgspec.to_builtins(found)):
        raise BadInput(why, where=where, fix="another run: nothing is learnt from this one")
    content: dict[str, Any] = found.content
    try:
        measured = msgspec.convert(content["measurement"], Measurement)
        check(measured)
        assignment = msgspec.convert(content["assignment"], Assignment)
        if assignment.graph:
            kept(assignment.model, assignment.graph, where, found.fingerprint)
        return RunRecord(
            assignment=assignment,
            measured=measured,
            place=int(content["place"]),
            places=tuple(int(one["place"].get("pp", 0)) for one in content.get("reports", ())) or (0,) * measured.ranks,
            cluster=_cluster(found, cluster),
        )
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as problem:
        raise BadInput(f"not a whole record of a run: {problem}", where=where) from None


def reports_of(found: Record, where: str) -> tuple[Assignment, tuple[Report, ...], dict[str, float]]:
    """What was asked of the ranks of a run, what each of them saw, and how stale gradients were."""
    one = ran(found, where)
    try:
        reports = msgspec.convert(found.content.get("reports", ()), tuple[Report, ...])
    except msgspec.ValidationError as problem:
        raise BadInput(f"not a whole record of a run: reports: {problem}", where=where) from None
    return one.assignment, reports, one.measured.staleness


def _cluster(found: Record, said: str) -> Cluster:
    """The cluster that is named now, that was named then, or the machine that the record describes."""
    where = _named_cluster(found, said)
    asked = found.content["assignment"].get("rehearsal")
    if asked:
        device = cluster_of(msgspec.convert(found.content["machine"], MeasuredMachine)).device
        return standing_in(where, device, silent=not asked.get("priced", True))
    return where


def _named_cluster(found: Record, said: str) -> Cluster:
    named = said or (found.cluster if found.cluster != HERE or "machine" not in found.content else "")
    return catalog.cluster(named) if named else cluster_of(msgspec.convert(found.content["machine"], MeasuredMachine))


def of_record(
    found: Record, where: str, cluster: str = "", calibration: str = "", disturbed: bool = False
) -> Comparison:
    """The comparison of a run that was recorded, on the cluster of the record or another one."""
    one = ran(found, where, cluster)
    return compared(one.assignment, one.measured, one.place, one.cluster, calibration, one.places, disturbed)


def simulated(found: Record, where: str, calibration: str = "") -> Simulated | None:
    """The step of a recorded run as it is predicted, event by event; None where it ran more ranks than cores."""
    one = ran(found, where)
    setting = one.assignment.setting
    if setting.plan.ranks > one.cluster.ranks:
        return None
    known = with_calibration(setting, one.cluster, calibration)
    return simulate(priced(known.setting, known.cluster))
