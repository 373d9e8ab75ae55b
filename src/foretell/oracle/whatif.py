"""What a step would be with other hardware, another batch, another sequence: which of them pays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from foretell.errors import BadInput, ForetellError
from foretell.oracle.advice import harmless
from foretell.oracle.planning import Watching, like
from foretell.oracle.predict import Prediction
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.refinement import refined_answer
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.upgrades import TIMES, Knob, hardware, jobs
from foretell.plan.plan import Plan
from foretell.summary import Summarized, priced
from foretell.units import show_seconds

JOB_TIMES: Final = (0.5, 2.0, 4.0)

TWICE: Final = 2.0
"""Upgrades are put in order by what twice as good hardware gives."""


LAST: Final = (0.0, 0.0)
"""The worth of what could not be tried so far."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing changed by one factor."""

    what: str
    kind: str  # hardware, or job
    times: float
    step_seconds: float  # 0 where the plan is refused
    samples_per_second: float
    tokens_per_second: float
    faster: float  # samples a second (of other sequences: tokens) against those of before; 1: as fast
    memory_bytes: float
    fits: bool
    refused: str  # the rule with its numbers; empty where there is none
    plan: str = ""  # that was predicted: the batch takes the micro-batches with it; empty where it is refused
    microbatches: int = 0  # of that plan
    best: Candidate | None = None  # the best plan then, where it was searched for
    best_faster: float = 0.0  # its rate against that of before


class WhatIf(Summarized, frozen=True, kw_only=True):
    """A plan on hardware and for jobs that differ in one thing."""

    model: str
    cluster: str
    trainer: str
    ranks: int  # of the cluster
    batch: int
    seq: int  # 0: samples are no sequences
    plan: str
    searched: bool  # the plan is the best of a search
    prediction: Prediction
    hardware: tuple[Effect, ...]  # what pays most when it is twice as good comes first
    jobs: tuple[Effect, ...]
    best: Candidate | None = None  # the best plan as things are, where it was searched for
    best_faster: float = 0.0  # its rate against that of the plan

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "plan", self.plan
        yield "step", priced(self.prediction.step_seconds, self.prediction.memory_bytes)
        for one in (*self.hardware, *self.jobs):
            if one.times == TWICE:
                faster = f"{show_seconds(one.step_seconds)}, {one.faster:.2f} times as fast"
                yield f"2x {one.what}", one.refused or faster


def whatif(question: Request, again: bool = False, watching: Watching | None = None) -> WhatIf:
    """Predict a plan (None: the best there is) with each thing changed; `again`: also search for the best then."""
    plan = question.plan
    trial = PlanEvaluator(question)
    best: Candidate | None = None
    if plan is None:
        found = refined_answer(question, watching).found
        best = found.best
        if best is None and not found.complete:
            raise BadInput("interrupted before a plan that fits was found", where="--plan best", fix="a plan's text")
        if best is None:
            what = f"no plan of {question.model} fits {question.place.text}"
            raise BadInput(what, where="--plan best", fix="foretell plan, which lists what would fit")
        chosen, alike = best.value, question
    else:
        chosen, alike = trial.complete(trial.allowed(plan)), like(question, plan)
        best = refined_answer(alike, watching).found.best if again else None
    step = trial.predicted(chosen)
    effects = _Effects(trial, alike, chosen, step, again, watching)
    return WhatIf(
        model=question.model,
        cluster=question.place.text,
        trainer=step.trainer,
        ranks=question.place.ranks,
        batch=question.batch,
        seq=round(step.tokens_per_second / step.samples_per_second),
        plan=str(chosen),
        searched=plan is None,
        prediction=step,
        hardware=_by_worth(
            [one for knob in hardware(question.place) for one in harmless(partial(effects.of, knob, TIMES))]
        ),
        jobs=tuple(one for knob in jobs(alike) for one in harmless(partial(effects.of, knob, JOB_TIMES))),
        best=best,
        best_faster=_rate(trial.predicted(best.value)) / _rate(step) if best else 0.0,
    )


def _by_worth(found: list[Effect]) -> tuple[Effect, ...]:
    """What pays most for the plan as it is first; of equal ones what pays most for the best plan then."""
    worth = {one.what: (-one.faster, -one.best_faster) for one in found if one.times == TWICE}
    return tuple(sorted(found, key=lambda one: (worth.get(one.what, LAST), one.what, one.times)))


class _Effects:
    def __init__(
        self,
        trial: PlanEvaluator,
        alike: Request,
        plan: Plan,
        step: Prediction,
        again: bool,
        watching: Watching | None,
    ) -> None:
        self.trial, self.alike, self.plan, self.step = trial, alike, plan, step
        self.again, self.watching = again, watching

    def of(self, knob: Knob, all_times: tuple[float, ...]) -> Iterator[Effect]:
        """A thing changed by each factor that it can be changed by."""
        for times in all_times:
            question = knob.changed(self.alike, times)
            if question is not None:
                yield self._searched(self._effect(knob, times, question), question, times)

    def _effect(self, knob: Knob, times: float, question: Request) -> Effect:
        there = self.trial.elsewhere(question)
        plan = knob.plan(self.plan, times)
        try:
            broken = there.broken(plan)
            step = there.predicted(plan) if not broken else None
        except ForetellError as problem:  # a batch or a sequence that there is not
            return _refused(knob, times, problem.what)
        if step is None:
            return _refused(knob, times, str(broken[0]))
        return Effect(
            what=knob.name,
            kind=knob.kind,
            times=times,
            step_seconds=step.step_seconds,
            samples_per_second=step.samples_per_second,
            tokens_per_second=step.tokens_per_second,
            faster=_rate(step) / _rate(self.step),
            memory_bytes=step.memory_bytes,
            fits=there.fits(step),
            refused="",
            plan=str(plan),
            microbatches=step.microbatches,
        )

    def _searched(self, effect: Effect, question: Request, times: float) -> Effect:
        if not self.again or times != TWICE:
            return effect
        best = next(harmless(lambda: (refined_answer(question, self.watching).found.best,)), None)
        if best is None:
            return effect
        step = self.trial.elsewhere(question).predicted(best.value)
        return msgspec.structs.replace(effect, best=best, best_faster=_rate(step) / _rate(self.step))


def _refused(knob: Knob, times: float, why: str) -> Effect:
    """A change that the plan cannot be made with."""
    return Effect(
        what=knob.name,
        kind=knob.kind,
        times=times,
        step_seconds=0.0,
        samples_per_second=0.0,
        tokens_per_second=0.0,
        faster=0.0,
        memory_bytes=0.0,
        fits=False,
        refused=why,
    )


def _rate(step: Prediction) -> float:
    """Tokens a second where there are some, so that sequences of other lengths compare."""
    return step.tokens_per_second or step.samples_per_second
