"""Where two plans differ, what each difference costs, and a way from one to the other by single changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from foretell.errors import BadInput
from foretell.oracle.predict import Prediction
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator
from foretell.oracle.single_changes import Differences, Done
from foretell.plan.plan import Plan
from foretell.plan.refusal import Refusal
from foretell.summary import Summarized, priced
from foretell.units import show_seconds

NOTHING: Done = frozenset()


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One change, made alone in the first plan."""

    what: str
    plan: str  # the first plan with this change, and with those that it needs
    step_seconds: float  # of that plan
    gain_seconds: float  # against the first plan; below 0: it costs
    memory_bytes: float
    fits: bool
    needs: tuple[str, ...]  # the fewest other changes without which a rule refuses it
    rule: str  # that refuses it alone; empty where it is legal
    why: str  # with its numbers


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a way: mostly one change, more where they only go together."""

    changes: tuple[str, ...]
    plan: str  # after it
    step_seconds: float
    gain_seconds: float
    memory_bytes: float
    fits: bool


class DiffPart(msgspec.Struct, frozen=True):
    """One part of the time or memory of both plans."""

    name: str
    first: float
    second: float


class Diff(Summarized, frozen=True, kw_only=True):
    """Two plans side by side."""

    model: str
    cluster: str
    trainer: str
    ranks: int  # of the cluster
    batch: int
    first: Prediction
    second: Prediction
    differences: tuple[PlanDifference, ...]
    time: tuple[DiffPart, ...]  # seconds of a step by what they are spent on, the largest difference first
    memory: tuple[DiffPart, ...]  # bytes by kind
    path: tuple[DiffStep, ...]  # from the first to the second; each plan of it is legal
    together: tuple[tuple[str, ...], ...]  # changes that no order makes one after the other

    def summary(self) -> Iterator[tuple[str, str]]:
        for name, one in (("first", self.first), ("second", self.second)):
            yield name, priced(one.step_seconds, one.memory_bytes, one.plan)
        yield from (("change", f"{', '.join(one.changes)}: {show_seconds(one.step_seconds)}") for one in self.path)


def diff(question: Request, first: Plan, second: Plan) -> Diff:
    """Compare two plans that are legal."""
    trial = PlanEvaluator(question)
    first, second = (trial.complete(trial.allowed(plan)) for plan in (first, second))
    one, other = trial.predicted(first), trial.predicted(second)
    found = Walk(trial, first, second)
    path = found.path()
    return Diff(
        model=one.model,
        cluster=one.cluster,
        trainer=one.trainer,
        ranks=trial.request.place.ranks,
        batch=one.batch,
        first=one,
        second=other,
        differences=tuple(found.alone()),
        time=diff_parts(one.breakdown, other.breakdown),
        memory=diff_parts(one.memory.by_kind, other.memory.by_kind),
        path=path,
        together=tuple(step.changes for step in path if len(step.changes) > 1),
    )


def diff_parts(first: dict[str, float], second: dict[str, float]) -> tuple[DiffPart, ...]:
    """The parts of two plans side by side, the largest difference first."""
    names = dict.fromkeys((*first, *second))
    rows = [DiffPart(name, first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    return tuple(sorted(rows, key=lambda row: -abs(row.second - row.first)))


class Walk:
    """Ways from one plan to another through plans that break no rule."""

    def __init__(self, trial: PlanEvaluator, first: Plan, second: Plan) -> None:
        self.trial = trial
        self.between = Differences(first, second)
        self.all: Done = frozenset(range(len(self.between.changes)))

    def path(self) -> tuple[DiffStep, ...]:
        """Single changes, those that gain most first; as few of them together as any order allows."""
        for size in range(1, len(self.all) + 1):
            found = self._onward(NOTHING, size, set())
            if found is not None:
                return tuple(itertools.starmap(self._step, itertools.pairwise([NOTHING, *found])))
        return ()

    def alone(self) -> Iterator[PlanDifference]:
        """Each change made in the first plan, with what it needs."""
        start = self.trial.predicted(self.between.first)
        for at in sorted(self.all):
            needed = self._needed(at)
            plan = self.between.plan(needed | {at})
            after = self.trial.predicted(plan)
            refusal = Refusal("", "")
            if needed:
                refusal = self._refusal(frozenset({at}))
            yield PlanDifference(
                what=self.between.told(at),
                plan=str(plan),
                step_seconds=after.step_seconds,
                gain_seconds=start.step_seconds - after.step_seconds,
                memory_bytes=after.memory_bytes,
                fits=self.trial.fits(after),
                needs=tuple(map(self.between.told, sorted(needed))),
                rule=refusal.rule,
                why=refusal.why,
            )

    def _onward(self, done: Done, size: int, dead: set[Done]) -> list[Done] | None:
        if done == self.all:
            return []
        if done in dead:
            return None
        for after in self._next(done, size):
            rest = self._onward(after, size, dead)
            if rest is not None:
                return [after, *rest]
        dead.add(done)
        return None

    def _next(self, done: Done, size: int) -> list[Done]:
        """What can follow: one change rather than two, what fits rather than what does not, the fastest first."""
        found: list[tuple[int, bool, float, Done]] = []
        for count in range(1, size + 1):
            for more in itertools.combinations(sorted(self.all - done), count):
                after = done | frozenset(more)
                if self._legal(after):
                    step = self.trial.predicted(self.between.plan(after))
                    found.append((count, not self.trial.fits(step), step.step_seconds, after))
        return [after for *_, after in sorted(found, key=lambda one: (*one[:3], sorted(one[3])))]

    def _needed(self, at: int) -> Done:
        """The fewest other changes with which this one is legal in the first plan."""
        others = sorted(self.all - {at})
        for count in range(len(others)):
            for more in itertools.combinations(others, count):
                if self._legal(frozenset((at, *more))):
                    return frozenset(more)
        return frozenset(others)

    def _legal(self, done: Done) -> bool:
        try:
            return self.trial.legal(self.between.plan(done))
        except BadInput:  # a plan that nobody can write
            return False

    def _refusal(self, done: Done) -> Refusal:
        try:
            return self.trial.broken(self.between.plan(done))[0]
        except BadInput as problem:
            return Refusal("a plan that can be written", problem.what)

    def _step(self, before: Done, after: Done) -> DiffStep:
        plan = self.between.plan(after)
        old, new = self.trial.predicted(self.between.plan(before)), self.trial.predicted(plan)
        return DiffStep(
            changes=tuple(map(self.between.told, sorted(after - before))),
            plan=str(plan),
            step_seconds=new.step_seconds,
            gain_seconds=old.step_seconds - new.step_seconds,
            memory_bytes=new.memory_bytes,
            fits=self.trial.fits(new),
        )
