"""Why not this plan: the rule, the bytes or the cost by which it loses to the best, and what would make it win."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from foretell.errors import BadInput
from foretell.oracle.advice import harmless
from foretell.oracle.changes import PlanChange
from foretell.oracle.diff import DiffStep, Walk
from foretell.oracle.fit import would_fit
from foretell.oracle.planning import PlanningAnswer, Watching, like
from foretell.oracle.predict import Prediction
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.refinement import refined_answer
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.upgrades import TIMES, Knob, hardware
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal
from foretell.summary import Summarized, priced
from foretell.units import show_seconds

ALIKE: Final = 1e-9
"""Share of a step below which two times are one: they were added up in another order."""


class Win(msgspec.Struct, frozen=True, kw_only=True):
    """Better hardware on which the plan fits, or on which no plan is faster."""

    what: str
    times: float
    step_seconds: float  # of the plan, on it
    rival: str  # the fastest other plan there that was priced; empty where the plan only had to fit
    rival_seconds: float


class Why(Summarized, frozen=True, kw_only=True):
    """The answer for one plan."""

    model: str
    cluster: str
    trainer: str
    ranks: int  # of the cluster
    batch: int
    asked: str  # the plan that was asked about
    verdict: str  # refused, too large, loses, or best
    refusals: tuple[Refusal, ...]  # with their numbers
    plan: str  # that is compared with the best: the one asked about, or the nearest that is legal; empty: none is
    prediction: Prediction | None  # of that plan
    too_much: float  # bytes by which it does not fit; 0: it fits
    fixes: tuple[PlanChange, ...]  # where it does not fit: what would, the smallest change first
    best: Candidate | None  # None: nothing fits
    nearest: Candidate | None  # the plan of all that needs the least memory
    capacity: float
    gap_seconds: float  # that the best is faster; below 0: the plan is outside what is searched, and faster
    path: tuple[DiffStep, ...]  # from the plan to the best, what gains most first
    hardware: tuple[Win, ...]  # the least better hardware of each kind with which it wins, or fits
    tried: tuple[str, ...]  # kinds of hardware with which it does neither
    evaluated: int  # plans that were priced
    complete: bool

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "plan", self.asked
        yield "verdict", self.verdict
        yield from (("rule", str(one)) for one in self.refusals)
        if self.prediction is not None:
            yield "step", priced(self.prediction.step_seconds, self.prediction.memory_bytes)
        if self.best is not None:
            yield "best", priced(self.best.step_seconds, self.best.memory_bytes, self.best.plan)
        yield from (("change", f"{', '.join(one.changes)}: {show_seconds(one.step_seconds)}") for one in self.path)


def why(question: Request, watching: Watching | None = None) -> Why:
    """Compare a plan with the best of all that are like it."""
    if question.plan is None:
        raise BadInput("no plan is given", where="--plan", fix="--plan 'dp8:zero3 +bf16'")
    _ = question.place.device  # mixed clusters are refused before they are searched
    trial = PlanEvaluator(question)
    asked = trial.complete(question.plan)
    broken = trial.refusals(asked)
    own = trial.nearest(asked) if broken else asked
    best = refined_answer(like(question, asked), watching)  # as `plan` answers, stages and parts chosen
    found = best.found
    step = trial.predicted(own) if own is not None else None
    over = max(0.0, step.memory_bytes - trial.usable(step)) if step else 0.0
    gap = _gap(step, found.best) if step and found.best else 0.0
    verdict = "refused" if broken else "too large" if over else "loses" if gap > 0 else "best"
    winning, losing = _hardware(trial, own, best, verdict, watching) if own is not None else ((), ())
    return Why(
        model=question.model,
        cluster=question.place.text,
        trainer=trial.trainer.name,
        ranks=question.place.ranks,
        batch=question.batch,
        asked=str(asked),
        verdict=verdict,
        refusals=broken,
        plan=str(own) if own is not None else "",
        prediction=step,
        too_much=over,
        fixes=_fixes(trial, step, own) if step is not None and own is not None and over else (),
        best=found.best,
        nearest=found.nearest,
        capacity=found.capacity,
        gap_seconds=gap,
        path=_path(trial, own, found.best) if own is not None and found.best else (),
        hardware=winning,
        tried=losing,
        evaluated=found.evaluated,
        complete=found.complete,
    )


def _path(trial: PlanEvaluator, own: Plan, best: Candidate) -> tuple[DiffStep, ...]:
    """Single changes from the plan to the best, as far as there is such a way."""
    return tuple(harmless(lambda: Walk(trial, own, _as_written(best, own)).path()))


def _as_written(best: Candidate, own: Plan) -> Plan:
    """The best plan in the words of the other: precision that the trainer gives it anyway is no change on the way."""
    plan = best.value
    if own.policy(Precision).name or plan.policy(Precision).format != own.policy(Precision).format:
        return plan
    return msgspec.structs.replace(plan, policies=tuple(one for one in plan.policies if not isinstance(one, Precision)))


def _gap(step: Prediction, best: Candidate) -> float:
    gap = step.step_seconds - best.step_seconds
    return gap if abs(gap) > ALIKE * step.step_seconds else 0.0


def _fixes(trial: PlanEvaluator, step: Prediction, plan: Plan) -> tuple[PlanChange, ...]:
    """What would fit, each proved by predicting it."""
    question, setting = trial.request, trial.setting(plan)
    hope = question.changed(plan=None, optimizer=setting.job.optimizer)
    most = question.max_memory or float("inf")
    return tuple(harmless(lambda: (one for one in would_fit(hope, step, setting) if one.memory_bytes <= most)))


# hardware


def _hardware(
    trial: PlanEvaluator, plan: Plan, best: PlanningAnswer, verdict: str, watching: Watching | None
) -> tuple[tuple[Win, ...], tuple[str, ...]]:
    """For each kind of better hardware the least with which the plan fits, or wins; and the kinds that do not help."""
    if verdict not in ("too large", "loses") or not best.found.complete:
        return (), ()
    wins: list[Win] = []
    losing: list[str] = []
    for knob in hardware(trial.cluster):
        if (knob.name == "memory") != (verdict == "too large"):  # a step is no faster for memory that it does not need
            continue
        found = next(harmless(partial(_wins, trial, plan, best, knob, verdict, watching)), None)
        if found is None:
            losing.append(knob.name)
        else:
            wins.append(found)
    return tuple(sorted(wins, key=lambda win: win.times)), tuple(losing)


def _wins(
    trial: PlanEvaluator, plan: Plan, best: PlanningAnswer, knob: Knob, verdict: str, watching: Watching | None
) -> Iterator[Win]:
    rivals = [one.value for one in dict.fromkeys((*best.found.top, *best.found.pareto)) if one.plan != str(plan)]
    for times in TIMES:
        question = knob.changed(best.question, times)
        if question is None:
            continue
        there = trial.elsewhere(question)
        step = there.predicted(plan)
        if not there.fits(step):
            continue
        if verdict == "too large":
            yield Win(what=knob.name, times=times, step_seconds=step.step_seconds, rival="", rival_seconds=0.0)
            continue
        others = [there.predicted(rival) for rival in rivals]
        if any(there.fits(other) and other.step_seconds < (1 - ALIKE) * step.step_seconds for other in others):
            continue
        found = refined_answer(question, watching).found  # the whole space, on that hardware
        if not found.complete:
            return
        if found.best is None or found.best.step_seconds >= (1 - ALIKE) * step.step_seconds:
            rival = next((one for one in found.top if one.plan != str(plan)), None)
            yield Win(
                what=knob.name,
                times=times,
                step_seconds=step.step_seconds,
                rival=rival.plan if rival else "",
                rival_seconds=rival.step_seconds if rival else 0.0,
            )
