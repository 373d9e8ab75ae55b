"""Does a model fit a cluster, with which plan, and with how many samples at a time?

Without a plan a short ladder of common plans is tried, never all that there are. Each one that fits is
predicted with its largest micro-batch, and the one that trains most samples a second is the answer. If
none fits, the answer is the one that misses by least, and what would fit: each change was predicted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foretell.errors import BadInput
from foretell.oracle.advice import harmless
from foretell.oracle.batch_prober import BatchProber, Climbed, ProbedPlan, Rung, with_policy
from foretell.oracle.changes import PlanChange, adapters, changes, two_changes
from foretell.oracle.kept_stacks import measured_on
from foretell.oracle.ladder import ladder
from foretell.oracle.padding import with_rows
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.training import STEP_ALONE
from foretell.plan.job import micro_batch
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.trainer import trainer
from foretell.summary import Summarized
from foretell.units import show_bytes

ENOUGH: Final = 3
"""Plans of the ladder that fit before the walk ends."""

ROOMY: Final = 32
"""A plan whose ranks take so many samples at a time is not helped by more memory: the walk ends there."""

ALIKE: Final = 0.02
"""Plans whose speeds differ by less are alike, and the simpler one, higher on the ladder, is taken."""


class Fit(Summarized, frozen=True, kw_only=True):
    """The answer."""

    model: str
    cluster: str
    trainer: str
    fits: bool
    plan: str  # the fastest that fits, or the one that misses by least
    micro_batch: int  # samples of one rank at a time: the largest that fits, or the smallest that there is
    limit: str  # why not more samples at a time: memory, batch, model
    sample_bytes: float  # what one more sample at a time takes; 0 where only one size was predicted
    free_bytes: float  # of what a run can use; less than nothing if it does not fit
    prediction: Prediction
    batch: int  # as it was asked; 0: not said
    seq: int  # the same
    tried: tuple[Rung, ...]
    changes: tuple[PlanChange, ...]  # the smallest first; none where it fits
    notes: tuple[str, ...]

    def summary(self) -> Iterator[tuple[str, str]]:
        room = show_bytes(abs(self.free_bytes))
        yield "fits", f"yes, {room} free" if self.fits else f"no, {room} too much"
        yield "micro-batch", f"{self.micro_batch:,}"
        yield from self.prediction.summary()


def fit(request: Request) -> Fit:
    """Whether a plan fits, or any common one."""
    return fitted(request)[0]


def fitted(request: Request) -> tuple[Fit, Setting]:
    """The answer, with the setting that it was predicted for."""
    request = with_rows(request)
    asked = BatchProber(request)
    walked = [asked.climb(request.plan)] if request.plan else list(_walk(asked))
    found = [one.best for one in walked if one.best]
    if not found:
        raise _refused(request, walked)
    fitting = [one for one in found if one.prediction.fits]
    if fitting:
        fastest = max(one.prediction.samples_per_second for one in fitting)
        best = next(one for one in fitting if one.prediction.samples_per_second >= (1 - ALIKE) * fastest)
    else:
        best = min(found, key=lambda one: one.prediction.memory_bytes)
    answer = Fit(
        model=request.model,
        cluster=request.place.text,
        trainer=trainer(request.trainer).name,
        fits=best.prediction.fits,
        plan=str(best.plan),
        micro_batch=best.micro,
        limit=asked.limit(best),
        sample_bytes=asked.sample_bytes(best),
        free_bytes=best.prediction.usable - best.prediction.memory_bytes,
        prediction=_under_way(best, request),
        batch=request.batch,
        seq=request.seq,
        tried=tuple(one.rung for one in walked),
        changes=() if fitting else tuple(harmless(lambda: (*changes(asked, best), *adapters(asked, best)))),
        notes=tuple(asked.notes()),
    )
    return answer, best.setting


def _under_way(best: ProbedPlan, request: Request) -> Prediction:
    """The prediction with what the run meets; plans were compared by their steps alone."""
    if request.run == STEP_ALONE:
        return best.prediction
    if request.run.examples is not None:
        batch = best.prediction.batch
        return predicted(request.changed(plan=best.plan, batch=batch, batch_per_rank=0))[1]
    known = measured_on(best.setting, request.place, request.measured, request.model)
    return predict(known.setting, known.cluster, request.run)


def would_fit(request: Request, prediction: Prediction, setting: Setting) -> tuple[PlanChange, ...]:
    """What would fit instead of a plan that does not: one change, the smallest first, or else two together."""
    return tuple(harmless(lambda: _would_fit(request, prediction, setting)))


def _would_fit(request: Request, prediction: Prediction, setting: Setting) -> tuple[PlanChange, ...]:
    asked = BatchProber(request.changed(plan=setting.plan, batch=setting.job.batch, batch_per_rank=0))
    found = ProbedPlan(setting.plan, setting.plan, micro_batch(setting.job, setting.plan), prediction, setting)
    one_or_two = tuple(changes(asked, found)) or tuple(two_changes(asked, found))
    return (*one_or_two, *adapters(asked, found))


def _walk(asked: BatchProber) -> Iterator[Climbed]:
    """Down the ladder until enough plans fit. What only saves memory is not tried where there is enough."""
    fitting: set[Plan] = set()
    for plan in ladder(asked.cluster, asked.facts, asked.trainer):
        if with_policy(plan, Recompute()) in fitting:
            continue
        one = asked.climb(plan)
        yield one
        if one.rung.fits:
            fitting.add(plan)
            if len(fitting) == ENOUGH or one.rung.micro_batch >= ROOMY:
                return


def _refused(request: Request, walked: Sequence[Climbed]) -> BadInput:
    first = walked[0]
    ways = PlanEvaluator(request).refusals(first.asked)
    fix = ways[0].way_out if ways else ""
    if request.plan:
        return BadInput(f"{first.rung.plan} does not fit: {first.rung.why}", where="--plan", fix=fix)
    rungs = "\n".join(f"  {one.rung.plan}: {one.rung.why}" for one in walked[:3])
    software, place = trainer(request.trainer).name, request.place.text
    what = f"{software} runs none of the {len(walked)} common plans on {place}, such as\n{rungs}"
    return BadInput(what, fix=fix or "--plan with a plan of your own")
