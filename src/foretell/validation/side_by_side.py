"""Each run of a study beside its prediction, in the unit that its source printed."""

from __future__ import annotations

import msgspec

from foretell.hardware import catalog
from foretell.oracle.verdict import verdict
from foretell.plan.policies.recompute import Recompute
from foretell.validation.evaluate import ComparedRun

SECONDS = "s"


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """One published run and what is predicted of it."""

    case: str
    unit: str  # of the next four: s, or tokens/s/GPU
    published: float
    predicted: float | None  # null: the plan is refused
    low: float | None  # of the interval
    high: float | None
    error: float | None  # predicted over published, less one
    inside: bool | None  # the published figure is in the interval
    fits: bool  # the plan is predicted to fit; every run here that finished did
    ran: bool
    memory_bytes: float | None
    memory_like: float | None  # of the number that was printed, if one was: what is predicted of the same one
    memory_published: float  # bytes; 0: none
    memory_before: float  # bytes of a device that an earlier version of this package foretold; 0: not asked
    usable: float | None
    verdict: str  # fits, fits with retries, fails; empty: refused
    again: str  # what runs again, as the plan says it
    refused: str  # the rule, where the plan is refused
    model: str
    plan: str
    cluster: str
    trainer: str
    source: str
    known: str  # read, summary or recalled: how the published figure is known
    seen: bool  # it is scored in a published study too
    note: str

    @property
    def off(self) -> bool:
        """Outside its interval, or wrong about memory: it owes an explanation."""
        return not self.inside or self.fits != self.ran


def side_by_side(one: ComparedRun) -> SideBySide:
    """A run without a publication of its own is in seconds."""
    row, prediction, said = one.row, one.prediction, one.row.publication
    unit = said.unit if said else SECONDS
    tokens = row.job.batch * row.job.sequence / catalog.cluster(row.cluster).ranks

    def shown(seconds: float) -> float:
        return seconds if unit == SECONDS else tokens / seconds

    published = said.figure if said else row.step_seconds
    bounds = sorted(map(shown, prediction.interval)) if prediction else [None, None]
    predicted = shown(prediction.step_seconds) if prediction else None
    return SideBySide(
        case=row.id,
        unit=unit,
        published=published,
        predicted=predicted,
        low=bounds[0],
        high=bounds[1],
        error=predicted / published - 1 if predicted is not None and published else None,
        inside=one.inside,
        fits=one.verdict[0],
        ran=one.verdict[1],
        memory_bytes=prediction.memory.device if prediction else None,
        memory_like=next((one.predicted for one in one.memory), None),
        memory_published=next((one.measured for one in one.memory), 0.0),
        memory_before=said.memory_before if said else 0.0,
        usable=prediction.usable if prediction else None,
        verdict=verdict(prediction.memory, prediction.usable, prediction.most) if prediction else "",
        again=row.plan.policy(Recompute).option,
        refused=one.rule,
        model=row.model,
        plan=str(row.plan),
        cluster=row.cluster,
        trainer=row.trainer,
        source=said.source if said else "",
        known=said.known if said else "",
        seen=said.seen if said else False,
        note=said.note if said else "",
    )
