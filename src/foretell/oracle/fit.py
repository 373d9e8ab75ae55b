"""Does a model fit a cluster, with which plan, and with how many samples at a time?

Without a plan a short ladder of common plans is tried, never all that there are. Each one that fits is
predicted with its largest micro-batch, and the one that trains most samples a second is the answer. If
none fits, the answer is the one that misses by least, and what would fit: each change was predicted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from foretell.errors import BadInput, unknown
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.optimizer import OPTIMIZERS
from foretell.oracle.asker import Asker, Climbed, Found, Rung, Wish, with_policy
from foretell.oracle.calibrations import NONE, as_measured, with_calibration
from foretell.oracle.changes import Change, changes, two_changes
from foretell.oracle.ladder import ladder
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.training import STEP_ALONE, Run
from foretell.plan.job import micro_batch
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.text import parse
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
    changes: tuple[Change, ...]  # the smallest first; none where it fits
    notes: tuple[str, ...]

    def summary(self) -> Iterator[tuple[str, str]]:
        room = show_bytes(abs(self.free_bytes))
        yield "fits", f"yes, {room} free" if self.fits else f"no, {room} too much"
        yield "micro-batch", f"{self.micro_batch:,}"
        yield from self.prediction.summary()


def fit(wish: Wish) -> Fit:
    """Answer a wish."""
    return fitted(wish)[0]


def fitted(wish: Wish) -> tuple[Fit, Setting]:
    """The answer, with the setting that it was predicted for."""
    asked = Asker(wish)
    walked = [asked.climb(wish.plan)] if wish.plan else list(_walk(asked))
    found = [one.best for one in walked if one.best]
    if not found:
        raise _refused(wish, walked)
    fitting = [one for one in found if one.prediction.fits]
    if fitting:
        fastest = max(one.prediction.samples_per_second for one in fitting)
        best = next(one for one in fitting if one.prediction.samples_per_second >= (1 - ALIKE) * fastest)
    else:
        best = min(found, key=lambda one: one.prediction.memory_bytes)
    answer = Fit(
        model=wish.model,
        cluster=wish.cluster.text,
        trainer=wish.trainer.name,
        fits=best.prediction.fits,
        plan=str(best.plan),
        micro_batch=best.micro,
        limit=asked.limit(best),
        sample_bytes=asked.sample_bytes(best),
        free_bytes=best.prediction.usable - best.prediction.memory_bytes,
        prediction=_under_way(best, wish),
        batch=wish.batch,
        seq=wish.seq,
        tried=tuple(one.rung for one in walked),
        changes=() if fitting else tuple(changes(asked, best)),
        notes=tuple(asked.notes()),
    )
    return answer, best.setting


def _under_way(best: Found, wish: Wish) -> Prediction:
    """The prediction with what the run meets; plans were compared by their steps alone."""
    if wish.run == STEP_ALONE:
        return best.prediction
    known = with_calibration(best.setting, wish.cluster, wish.calibration)
    return predict(known.setting, known.cluster, wish.run)


def would_fit(wish: Wish, prediction: Prediction, setting: Setting) -> tuple[Change, ...]:
    """What would fit instead of a plan that does not: one change, the smallest first, or else two together."""
    asked = Asker(msgspec.structs.replace(wish, plan=setting.plan, batch=setting.job.batch))
    found = Found(setting.plan, setting.plan, micro_batch(setting.job, setting.plan), prediction, setting)
    return tuple(changes(asked, found)) or tuple(two_changes(asked, found))


def _walk(asked: Asker) -> Iterator[Climbed]:
    """Down the ladder until enough plans fit. What only saves memory is not tried where there is enough."""
    fitting: set[Plan] = set()
    for plan in ladder(asked.wish.cluster, asked.facts, asked.wish.trainer):
        if with_policy(plan, Recompute()) in fitting:
            continue
        one = asked.climb(plan)
        yield one
        if one.rung.fits:
            fitting.add(plan)
            if len(fitting) == ENOUGH or one.rung.micro_batch >= ROOMY:
                return


def _refused(wish: Wish, walked: Sequence[Climbed]) -> BadInput:
    first = walked[0]
    if wish.plan:
        return BadInput(f"{first.rung.plan} does not fit: {first.rung.why}", where="--plan", fix=first.way_out)
    rungs = "\n".join(f"  {one.rung.plan}: {one.rung.why}" for one in walked[:3])
    what = f"{wish.trainer.name} runs none of the {len(walked)} common plans on {wish.cluster.text}, such as\n{rungs}"
    return BadInput(what, fix=first.way_out or "--plan with a plan of your own")


def wish(
    model: str,
    cluster: str | Cluster,
    plan: str | Plan | None = None,
    *,
    batch: int | None = None,
    trainer_name: str = "pytorch",
    seq: int | None = None,
    optimizer: str = "",
    graph: Graph | None = None,
    run: Run = STEP_ALONE,
    calibration: str = NONE,
) -> Wish:
    """A wish from what a person writes."""
    if batch is not None and batch < 1:
        raise BadInput(f"a batch of {batch}", where="--batch", fix="1 or more, for all ranks together")
    if seq is not None and seq < 1:
        raise BadInput(f"a sequence of {seq}", where="--seq", fix="1 or more tokens: --seq 4096")
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS).within("--optimizer")
    named = catalog.named(cluster) if isinstance(cluster, str) else catalog.Named(cluster, ())
    runs = trainer(trainer_name)
    place = as_measured(
        named.cluster, runs, named.cluster.ranks, calibration
    )  # refused here if it is of another device
    return Wish(
        model=model,
        cluster=named.cluster,
        trainer=runs,
        plan=parse(plan) if isinstance(plan, str) else plan,
        batch=batch or 0,
        seq=seq or 0,
        optimizer=optimizer,
        graph=graph,
        run=run,
        calibration=calibration,
        notes=(*named.notes, *place.notes),
    )
