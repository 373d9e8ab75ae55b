"""Many trials on one pool of GPUs: how many GPUs each trial gets, in which order they run, and when the last one ends.

A trial may run in any of the shapes that a sweep answered. More GPUs end it sooner and cost more GPU time, since no
scaling is perfect. Which shape is best depends on all others: so each length that a trial can have is tried as a
target, every candidate takes the cheapest shape that meets it (Turek, Wolf, Yu 1992), and the trials are laid out
longest first, each on the GPUs that are free soonest (Graham 1969). The layout that ends first is the answer, and
beside it stands what no layout can be faster than.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware import catalog
from foretell.sweeping.cell import OK, SweepRow

ABOUT: Final = ("model", "trainer", "batch", "seq", "precision")
"""What makes a candidate; the cluster and the plan are its shape."""

MOST: Final = 100_000
"""Trials that are laid out one by one."""


class TrialShape(NamedTuple):
    """One way to run a trial."""

    row: SweepRow
    seconds: float

    @property
    def cost(self) -> float:
        """GPU seconds."""
        return self.row.ranks * self.seconds


class TrialGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of one candidate."""

    model: str
    batch: int
    trainer: str
    seq: int
    precision: str
    plan: str
    trials: int
    ranks: int  # GPUs of each
    seconds: float  # of each


class TrialLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Trials on a pool of GPUs."""

    device: str
    gpus: int
    steps: int  # of each trial
    groups: tuple[TrialGroup, ...]
    seconds: float  # until the last trial is over
    least: float  # no layout of these shapes takes less
    idle: float  # share of the GPU time until then in which no trial runs


def laid_out(rows: Iterable[SweepRow], trials: int, steps: int, gpus: int) -> TrialLayout:
    """So many trials of each candidate of a sweep, of so many steps, on so many GPUs."""
    shapes = _shapes(rows, steps, gpus)
    if trials * len(shapes) > MOST:
        what = f"{trials:,} trials of {len(shapes):,} candidates are {trials * len(shapes):,}"
        raise BadInput(what, where="--trials", fix=f"at most {MOST:,} in all")
    targets = sorted({shape.seconds for own in shapes for shape in own})
    tried = [chosen for target in targets if (chosen := _within(shapes, target))]
    best = min(tried, key=lambda chosen: (ends(chosen, trials, gpus), sum(one.cost for one in chosen)))
    last, work = ends(best, trials, gpus), trials * sum(one.cost for one in best)
    return TrialLayout(
        device=pool_device(own[0].row.cluster for own in shapes),
        gpus=gpus,
        steps=steps,
        groups=tuple(_group(one, trials) for one in best),
        seconds=last,
        least=least(shapes, trials, gpus),
        idle=max(0.0, 1 - work / (gpus * last)),
    )


def _group(shape: TrialShape, trials: int) -> TrialGroup:
    said = {name: getattr(shape.row, name) for name in (*ABOUT, "plan", "ranks")}
    return TrialGroup(**said, trials=trials, seconds=shape.seconds)


def _shapes(rows: Iterable[SweepRow], steps: int, gpus: int) -> list[list[TrialShape]]:
    """The ways of each candidate that the pool has room for."""
    found: dict[tuple[object, ...], list[TrialShape]] = {}
    for row in rows:
        own = found.setdefault(tuple(getattr(row, name) for name in ABOUT), [])
        if row.status == OK and row.step_seconds and row.ranks <= gpus:
            own.append(TrialShape(row, steps * row.step_seconds))
    for about, own in found.items():
        if not own:
            what = f"no answer for {about[0]}, batch {about[2]:,}, runs on {gpus:,} GPUs or fewer"
            raise BadInput(what, where="--gpus", fix="more of them, or a smaller cluster in --on")
    pool_device(shape.row.cluster for own in found.values() for shape in own)
    return list(found.values())


def pool_device(clusters: Iterable[str]) -> str:
    """The one device of all clusters: a pool has GPUs of one kind."""
    devices = sorted({catalog.cluster(text).device.name for text in clusters})
    if len(devices) > 1:
        what = f"trials on one pool of GPUs, and the clusters have {' and '.join(devices)}"
        raise BadInput(what, where="--on", fix="clusters of one device: 1xa100-40,2xa100-40,4xa100-40")
    return devices[0]


def _within(shapes: Sequence[Sequence[TrialShape]], target: float) -> list[TrialShape]:
    """The cheapest shape of each candidate that takes no longer; empty where one has none."""
    found: list[TrialShape] = []
    for own in shapes:
        fast = [shape for shape in own if shape.seconds <= target]
        if not fast:
            return []
        found.append(min(fast, key=lambda shape: (shape.cost, shape.row.ranks)))
    return found


def ends(chosen: Sequence[TrialShape], trials: int, gpus: int) -> float:
    """When the last trial is over: longest first, each on the GPUs that are free soonest."""
    free: list[float] = [0.0] * gpus
    for shape in sorted(chosen, key=lambda one: (-one.seconds, -one.row.ranks)):
        for _ in range(trials):
            taken = [heapq.heappop(free) for _ in range(shape.row.ranks)]
            for _ in taken:
                heapq.heappush(free, taken[-1] + shape.seconds)
    return max(free)


def least(shapes: Iterable[Sequence[TrialShape]], trials: int, gpus: int) -> float:
    """All trials at their cheapest with no GPU ever idle, or the longest trial at its fastest."""
    every = list(shapes)
    work = trials * sum(min(shape.cost for shape in own) for own in every)
    return max(work / gpus, *(min(shape.seconds for shape in own) for own in every))
