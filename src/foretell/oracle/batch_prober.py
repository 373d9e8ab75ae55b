"""Predicts plans of one question: with any number of samples at a time, and with as many as fit."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.errors import ForetellError
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.source import LARGEST_BATCH
from foretell.oracle.calibrations import elsewhere
from foretell.oracle.kept_stacks import measured_on
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import SIZABLE, loaded, place_of, setting_of
from foretell.plan.facts import facts
from foretell.plan.fitness import broken
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.policy import Policy
from foretell.plan.repair import divisors
from foretell.plan.setting import Setting, with_precision
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.trainer import trainer

ROUNDS: Final = 4
"""Micro-batches for each pipeline rank where no batch is given: the bubble is then about a fifth of the step
((p - 1) of (m + p - 1), Narayanan et al. 2021, arXiv 2104.04473, section 2.2, with m = 4 p)."""

GUESSES: Final = 8
"""Sizes that are guessed by how memory grows before the rest is halved."""

EXACT: Final = 64
"""The largest micro-batch is exact up to here; above, it is one with six binary digits, at most 3 % below."""


class Rung(msgspec.Struct, frozen=True):
    """One plan that was tried."""

    plan: str
    fits: bool
    micro_batch: int  # the largest that fits, or the smallest that there is; 0 where the plan is refused
    memory_bytes: float  # with it
    samples_per_second: float
    why: str  # not: the rule that refuses it; empty where it was predicted


class ProbedPlan(NamedTuple):
    """A plan with the samples of one rank at a time, predicted."""

    asked: Plan  # as it was asked, perhaps without a word on micro-batches
    plan: Plan
    micro: int
    prediction: Prediction
    setting: Setting


class Climbed(NamedTuple):
    """What became of one plan: predicted at its largest micro-batch, or refused."""

    rung: Rung
    best: ProbedPlan | None
    asked: Plan  # with the micro-batches that it has at the smallest size


class BatchProber:
    """Predicts plans of one question; what was predicted once is remembered."""

    def __init__(self, request: Request) -> None:
        self.request, self.cluster, self.trainer = request, request.place, trainer(request.trainer)
        self._graphs: dict[tuple[int, int, str], Graph] = {}
        self._found: dict[tuple[Plan, int, str, int], ProbedPlan | str] = {}
        first = request.graph or loaded(request, None, request.seq)
        self.fixed = first if request.graph or first.source not in SIZABLE else None
        self._calibration_notes = place_of(request).notes  # refused here if it is of another device
        self.facts = facts(first)

    def notes(self) -> Iterator[str]:
        yield from (*self.request.notes, *self._calibration_notes)
        if self.fixed:
            yield f"{self.request.model} is a graph for a batch of {self.fixed.batch}: no other size was tried"
        if self.request.plan is None and not self.request.batch:
            yield "no batch is given: each plan is compared with the largest batch that fits it"

    def sizes(self, plan: Plan) -> Sequence[int]:
        """Samples that a rank could take at a time, in order."""
        shares = batch_ranks(plan)
        if self.fixed:
            return [max(1, self.fixed.batch // shares)]
        if not self.request.batch:
            return round_sizes(LARGEST_BATCH // shares)
        each = max(1, self.request.batch // shares)
        if plan.microbatches > 1:  # the plan says how many; 1 is not written
            return [max(1, each // plan.microbatches)]
        return divisors(each)[::-1] if each <= LARGEST_BATCH else [each]

    def counted(self, plan: Plan, micro: int) -> Plan:
        """The plan with the micro-batches that this size makes."""
        if plan.microbatches > 1:
            return plan
        pipeline = plan.axis(Pipeline)
        if self.request.batch:
            count = max(1, self.request.batch // (batch_ranks(plan) * micro))
        else:
            count = ROUNDS * pipeline.ranks if pipeline and pipeline.ranks > 1 else 1
        return with_policy(plan, Microbatches(count=count))

    def climb(self, plan: Plan) -> Climbed:
        """The largest micro-batch of a plan that fits, or how it fails with the smallest."""
        sizes = self.sizes(plan)
        found = self.ask(plan, sizes[0])
        counted = self.counted(plan, sizes[0])
        if not isinstance(found, ProbedPlan):
            return Climbed(Rung(str(plan), False, 0, 0.0, 0.0, found), None, counted)
        if found.prediction.fits:
            found = self._largest(plan, sizes, found)
        answer = found.prediction
        rung = Rung(str(found.plan), answer.fits, found.micro, answer.memory_bytes, answer.samples_per_second, "")
        return Climbed(rung, found, counted)

    def _largest(self, plan: Plan, sizes: Sequence[int], best: ProbedPlan) -> ProbedPlan:
        """Memory grows with the samples and nearly in proportion: guess by the last two sizes, halve what is left."""
        low, high = 0, len(sizes)  # sizes[low] fits, sizes[high] does not
        other: ProbedPlan | None = None
        for turn in itertools.count():
            if high - low < 2:
                return best
            at = low + 1 if other is None else _crossing(sizes, best, other)
            if turn > GUESSES:
                at = (low + high) // 2
            at = min(max(at, low + 1), high - 1)
            found = self.ask(plan, sizes[at])
            if isinstance(found, ProbedPlan) and found.prediction.fits:
                low, other, best = at, best if other is None or other.prediction.fits else other, found
            else:
                high, other = at, found if isinstance(found, ProbedPlan) else other
        raise AssertionError("the interval shrinks with every turn")

    def ask(self, plan: Plan, micro: int, cluster: Cluster | None = None, seq: int = 0) -> ProbedPlan | str:
        """Predict a plan; or why it is refused."""
        where = cluster or self.cluster
        key = (plan, micro, where.text, seq)
        if key not in self._found:
            try:
                self._found[key] = self._ask(plan, micro, where, seq or self.request.seq)
            except ForetellError as problem:
                self._found[key] = problem.what
        return self._found[key]

    def _ask(self, plan: Plan, micro: int, cluster: Cluster, seq: int) -> ProbedPlan | str:
        counted = with_precision(self.counted(plan, micro), self.trainer)
        shares = batch_ranks(counted)
        graph = self._graph(micro * shares, seq, counted.policy(Precision).format.activation)
        batch = self.request.batch or graph.batch * counted.microbatches
        setting = setting_of(self.request.changed(seq=seq), graph, counted, batch, self.trainer)
        for refusal in broken(setting, cluster):
            return refusal.why
        own = elsewhere(self.cluster, cluster, self.request.measured.calibration)
        measured = msgspec.structs.replace(self.request.measured, calibration=own)
        known = measured_on(setting, cluster, measured, self.request.model)
        return ProbedPlan(plan, counted, micro, predict(known.setting, known.cluster), setting)

    def _graph(self, batch: int, seq: int, dtype: str) -> Graph:
        if self.fixed:
            return self.fixed
        key = (batch, seq, dtype)
        if key not in self._graphs:
            self._graphs[key] = loaded(self.request, batch, seq, dtype)
        return self._graphs[key]

    def limit(self, best: ProbedPlan) -> str:
        """Why a rank takes no more samples at a time."""
        if self.fixed:
            return "model"
        sizes = self.sizes(self.request.plan or without_microbatches(best.plan))
        return "batch" if best.prediction.fits and best.micro >= sizes[-1] else "memory"

    def sample_bytes(self, best: ProbedPlan) -> float:
        """What one more sample at a time takes, by the nearest other size that was predicted."""
        others = [
            one
            for one in self._found.values()
            if isinstance(one, ProbedPlan)
            and one.micro != best.micro
            and one.prediction.cluster == best.prediction.cluster
            and without_microbatches(one.plan) == without_microbatches(best.plan)
        ]
        if not others:
            return 0.0
        other = min(others, key=lambda one: abs(one.micro - best.micro))
        return (other.prediction.memory_bytes - best.prediction.memory_bytes) / (other.micro - best.micro)


def round_sizes(most: int) -> Sequence[int]:
    """All sizes up to some, and those of six binary digits above."""
    found = list(range(1, min(most, EXACT) + 1))
    step = 2
    while found[-1] + step <= most:
        found += range(found[-1] + step, min(most, 2 * found[-1]) + 1, step)
        step *= 2
    return found


def _crossing(sizes: Sequence[int], best: ProbedPlan, other: ProbedPlan) -> int:
    """The largest size that fits if memory goes on from one prediction to another as it does between them."""
    slope = (other.prediction.memory_bytes - best.prediction.memory_bytes) / (other.micro - best.micro)
    room = best.prediction.usable - best.prediction.memory_bytes
    largest = best.micro + room / slope if slope > 0 else math.inf
    at = bisect.bisect_right(sizes, largest) - 1
    return at + 1 if sizes[at] == best.micro else at  # that one fits: the next one is the question


def with_policy(plan: Plan, policy: Policy) -> Plan:
    """The plan with this policy in the place of another of its kind."""
    others = tuple(other for other in plan.policies if other.word != policy.word)
    return msgspec.structs.replace(plan, policies=(*others, policy))


def without_microbatches(plan: Plan) -> Plan:
    """The plan without a word on micro-batches."""
    return with_policy(plan, Microbatches())
