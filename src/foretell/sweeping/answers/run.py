"""One plan run for real on this machine, as `foretell run` does it, with its record among your records."""

from __future__ import annotations

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment, Report, RunFailed
from foretell.runtime.launch import Ranks
from foretell.runtime.recording import HERE, recorded
from foretell.sweeping.cell import BROKEN, OK, SweepCell, SweepRow, row

TAKES_PLANS = True
ALONE = True


def answer(cell: SweepCell) -> SweepRow:
    """Train for some steps and tell their median. A run that fails is a line with its reason; the next cell goes on."""
    if cell.cluster != HERE:
        raise BadInput(f"runs are on {HERE}, not on {cell.cluster}", where="--on", fix=f"--on {HERE}")
    assignment = Assignment(
        model=cell.model,
        plan=cell.plan,
        batch=cell.batch,
        seq=cell.seq,
        trainer=cell.trainer,
        optimizer=cell.optimizer,
        steps=cell.steps or STEPS,
    )
    _ = assignment.setting  # what breaks rules is refused before anything starts
    try:
        return _told(cell, assignment, _ran(assignment))
    except RunFailed as problem:
        kept = recorded(assignment, problem.reports, failure=str(problem)).record if problem.reports else ""
        where = f" ({problem.where})" if problem.where else ""
        return row(cell, BROKEN, reason=f"{problem.what.splitlines()[0]}{where}", record=kept)


STEPS = 20
"""That are measured where nobody says how many: as by `foretell run`."""


def _ran(assignment: Assignment) -> tuple[Report, ...]:
    with Ranks() as ranks:
        return ranks.run(assignment)


def _told(cell: SweepCell, assignment: Assignment, reports: tuple[Report, ...]) -> SweepRow:
    found = recorded(assignment, reports)
    samples, tokens = cell.batch / found.step_seconds, assignment.setting.job.sequence
    return row(
        cell,
        OK,
        plan=found.plan,
        ranks=found.ranks,
        step_seconds=found.step_seconds,
        low_seconds=found.samples.p10,
        high_seconds=found.samples.p90,
        samples_per_second=samples,
        tokens_per_second=samples * tokens,
        memory_bytes=found.memory_bytes,
        evaluated=1,
        record=found.record,
    )
