"""What was predicted for a run, what was measured, and the difference of the two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from foretell.cost.samples import Machine
from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.oracle.calibrations import with_calibration
from foretell.oracle.predict import Prediction, predict
from foretell.program.lower import lower
from foretell.program.program import Program
from foretell.records.record import Record
from foretell.runtime.assignment import Assignment, Collective
from foretell.runtime.expected import expected, whenever
from foretell.runtime.measure import Measurement
from foretell.runtime.recording import HERE, cluster_of


class Difference(msgspec.Struct, frozen=True):
    """Predicted less measured, in the keys of an observation; `relative` are shares of what was measured."""

    step_seconds: float
    memory_bytes: float
    breakdown: dict[str, float]
    relative: dict[str, float]


class Traffic(msgspec.Struct, frozen=True):
    """Collectives that only one side has. Both empty: what ran is what the program said."""

    unexpected: tuple[Collective, ...]
    missing: tuple[Collective, ...]


class Comparison(msgspec.Struct, frozen=True):
    predicted: Prediction
    measured: Measurement
    error: Difference
    collectives: Traffic


def compared(
    assignment: Assignment, measured: Measurement, place: int, where: Cluster, calibration: str = ""
) -> Comparison:
    """Predict what was run, as the machine was calibrated, and subtract. `place` is the critical rank's, of stages."""
    setting = assignment.setting()
    if setting.plan.ranks > where.ranks:
        what = f"{setting.plan} ran {setting.plan.ranks} ranks, and {where.text} has {where.ranks}: they share cores"
        raise BadInput(what, where="--on", fix="fewer ranks, or --on the cluster it ran on")
    known = with_calibration(setting, where, calibration)
    predicted = predict(known.setting, known.cluster)
    found = traffic(lower(setting), place, measured.collectives)
    return Comparison(predicted, measured, _difference(predicted, measured), found)


def traffic(program: Program, place: int, counted: Iterable[Collective]) -> Traffic:
    """Where what a rank at a place of the pipeline did differs from what the program says."""
    said, ran = expected(program, place), whenever(counted)
    return Traffic(tuple(one for one in ran if one not in said), tuple(one for one in said if one not in ran))


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
    }
    return Difference(step, memory, parts, relative)


def of_record(found: Record, where: str, cluster: str = "", calibration: str = "") -> Comparison:
    """The comparison of a run that was recorded, on the cluster of the record or another one."""
    if found.kind != "run":
        raise BadInput(f"a record of a {found.kind}, not of a run", where=where, fix="a file that `foretell run` wrote")
    content: dict[str, Any] = found.content
    try:
        assignment = msgspec.convert(content["assignment"], Assignment)
        measured = msgspec.convert(content["measurement"], Measurement)
        place = int(content["place"])
        ran = cluster_of(msgspec.convert(content["machine"], Machine)) if "machine" in content else None
    except (KeyError, TypeError, msgspec.ValidationError) as problem:
        raise BadInput(f"not a whole record of a run: {problem}", where=where) from None
    said = cluster or (found.cluster if found.cluster != HERE or ran is None else "")
    return compared(assignment, measured, place, catalog.cluster(said) if said or ran is None else ran, calibration)
