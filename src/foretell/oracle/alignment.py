"""A step of a method after pre-training: its phases one after the other, and where each of them runs.

Training and forward passes are predictions of the plan, the latter without what only training has. Beside whatever runs
lies what the other phases leave on a device: weights and states of what is trained, weights of what is asked. Rollouts
are `oracle.rollout`'s. They run together with the rest, on the same devices in turn (with what training keeps there, or
on the host in the meantime), or apart, on devices of their own, one step ahead: a step then takes the longer of the
two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.hardware.members import link
from foretell.model.evaluated import evaluated
from foretell.model.graph import Graph
from foretell.model.scored import scored
from foretell.oracle.alignment_question import PLACES, AlignmentQuestion, check, row_tokens, sequences
from foretell.oracle.phase import SCORING, AlignmentMethod, AlignmentPhase, Role, method
from foretell.oracle.predict import Prediction
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request
from foretell.oracle.resolve import loaded
from foretell.oracle.rollout import SPREAD, Rollout, best
from foretell.oracle.training import HOUR
from foretell.plan.forward import without_training
from foretell.plan.plan import Plan
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.repair import changed, with_fields
from foretell.plan.setting import with_precision
from foretell.plan.strategies.data import Data
from foretell.plan.trainer import trainer

STANDING: Final = ("weights", "states")
"""Kinds of memory that are there between steps of training."""

LATE: Final = "apart, answers are those of the policy one step before: --place together writes them with today's"

CONTEXT: Final = ("context", "communicators", "workspace")


class PhaseTime(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a step."""

    what: str
    model: str
    ranks: int
    seconds: float
    low: float  # of the interval
    high: float
    memory_bytes: float  # of a device while it runs, with what lies beside it


class PhasePlacement(msgspec.Struct, frozen=True, kw_only=True):
    """One way to place the phases."""

    place: str
    plan: str
    training_ranks: int
    rollout_ranks: int
    replica: str  # what the ranks of one share out
    step_seconds: float
    interval: tuple[float, float]
    memory_bytes: float
    fits: bool
    phases: tuple[PhaseTime, ...]
    rollout: Rollout | None = None


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a method, by the way to take."""

    model: str
    method: str
    cluster: str
    trainer: str
    device: str
    ranks: int
    sequences: int  # that are trained on in a step
    tokens: float  # of these
    taken: int  # of the ways
    ways: tuple[PhasePlacement, ...]
    usable: float
    tokens_per_second: float
    cost: float  # of a thousand steps; 0 where no price is given
    notes: tuple[str, ...]

    @property
    def way(self) -> PhasePlacement:
        return self.ways[self.taken]


def aligned(asked: AlignmentQuestion, price: float = 0.0) -> Alignment:
    """All ways that were asked about, and the fastest that fits (or needs least)."""
    how = method(asked.method)
    check(asked, how)
    ways = list(_ways(asked, how))
    taken = min(range(len(ways)), key=lambda at: _order(ways[at]))
    way, place, request = ways[taken], asked.request.place, asked.request
    whole = _Phases(asked, how, _plan(request))
    rows, length = sequences(asked, how), whole.tokens
    return Alignment(
        model=request.model,
        method=asked.method,
        cluster=place.text,
        trainer=request.trainer,
        device=place.device.name,
        ranks=place.ranks,
        sequences=rows,
        tokens=rows * length,
        taken=taken,
        ways=tuple(ways),
        usable=whole.usable,
        tokens_per_second=rows * length / way.step_seconds,
        cost=1000 * way.step_seconds * place.ranks / HOUR * price,
        notes=(*_notes(asked, how), *([LATE] if way.place == "apart" else [])),
    )


def _order(way: PhasePlacement) -> tuple[bool, float]:
    return not way.fits, way.step_seconds if way.fits else way.memory_bytes


def _plan(request: Request) -> Plan:
    if request.plan is None:
        raise BadInput("no plan is given", where="--plan", fix="--plan 'dp8:zero3 +m8 +recompute:block +bf16'")
    return request.plan


def _ways(asked: AlignmentQuestion, how: AlignmentMethod) -> Iterator[PhasePlacement]:
    plan, place = _plan(asked.request), asked.request.place
    if not how.writes:
        yield _Phases(asked, how, plan).placed("together")
        return
    apart = plan.ranks < place.ranks
    if apart and asked.place in PLACES[:2]:
        what = f"the plan has {plan.ranks} of {place.ranks} ranks, and {asked.place} takes all"
        raise BadInput(what, where="--place", fix="--place apart, or a plan of all ranks")
    if apart:
        yield _Phases(asked, how, plan).placed("apart")
        return
    whole = _Phases(asked, how, plan)
    for where in PLACES[:2]:
        if asked.place in ("", where):
            yield whole.placed(where)
    if asked.place in ("", "apart"):
        yield from (_Phases(asked, how, one).placed("apart") for one in _smaller(plan, sequences(asked, how), asked))


def _smaller(plan: Plan, rows: int, asked: AlignmentQuestion) -> Iterator[Plan]:
    """The plan with fewer data ranks, and as many more micro-batches of the same size."""
    axis = plan.axis(Data)
    if axis is None or axis.ranks == 1:
        return
    unit = rows // asked.updates // (axis.ranks * plan.microbatches)
    for share in range(1, axis.ranks):
        count, rest = divmod(rows // asked.updates, share * max(1, unit))
        if not rest and (axis.ranks % share == 0 or axis.ranks % (axis.ranks - share) == 0):
            axes = tuple(with_fields(one, ranks=share) if one is axis else one for one in plan.axes)
            (smaller,) = changed(msgspec.structs.replace(plan, axes=axes), Microbatches(count=count))
            yield smaller


class _Phases:
    """The phases of a method under one plan."""

    def __init__(self, asked: AlignmentQuestion, how: AlignmentMethod, plan: Plan) -> None:
        self.asked, self.how, self.plan = asked, how, plan
        self.request, self.place = asked.request, asked.request.place
        self.models = dict(asked.models)
        self.phases = [phase for phase in how.phases if self._runs(phase)]
        self.trained: dict[Role, Prediction] = self._all("train")
        self.forwards: dict[Role, Prediction] = self._all("forward")
        first = next(iter(self.trained.values()))
        self.usable, self.tokens = first.usable, first.tokens_per_second / first.samples_per_second

    def _runs(self, phase: AlignmentPhase) -> bool:
        if phase.role == "reference" and self.asked.remembered:
            return False
        asked = phase.role in self.models or (phase.role == "reference" and self.asked.reference)
        return asked or not phase.optional

    def _all(self, doing: str) -> dict[Role, Prediction]:
        return {phase.role: self._predicted(phase) for phase in self.phases if phase.doing == doing}

    def _predicted(self, phase: AlignmentPhase) -> Prediction:
        trains = phase.doing == "train"
        plan = self.plan if trains else without_training(self.plan)
        rows = sequences(self.asked, self.how) // (self.asked.updates if trains else 1)
        if not trains:
            (plan,) = changed(plan, Microbatches(count=plan.microbatches * self.asked.updates))
        name = self.models.get(phase.role, self.request.model)
        request = self.request.changed(
            model=name, plan=plan, batch=rows, seq=row_tokens(self.asked), forward=not trains
        )
        if phase.role in SCORING or self.how.scores:
            request = request.changed(graph=self._scoring(request, plan))
        return predicted(request)[1]

    def _scoring(self, request: Request, plan: Plan) -> Graph:
        dtype = with_precision(plan, trainer(request.trainer)).policy(Precision).format.activation
        made = scored(loaded(request.changed(forward=False), 1, request.seq, dtype))
        return evaluated(made) if request.forward else made

    # memory

    def _standing(self, role: Role) -> float:
        """Bytes that a role leaves on a device between its phases."""
        if role in self.trained:
            return sum(self.trained[role].memory.by_kind.get(kind, 0.0) for kind in STANDING)
        shares = role == "reference" and self.plan.policy(Lora).rank  # the policy without its adapters
        return 0.0 if shares else self.forwards[role].memory.by_kind["weights"]

    def _beside(self, role: Role | None) -> float:
        """What all other roles leave there."""
        roles = dict.fromkeys((*self.trained, *self.forwards))
        return sum(self._standing(other) for other in roles if other != role)

    def _peak(self, phase: AlignmentPhase) -> float:
        if phase.doing == "train":
            return self.trained[phase.role].memory_bytes + self._beside(phase.role)
        found, own = self.forwards[phase.role], phase.role
        kept = found.memory.by_kind["weights"] if own in self.trained or not self._standing(own) else 0.0
        there = self._standing(own) if own in self.trained else 0.0
        return found.memory_bytes - kept + there + self._beside(own)

    # time

    def placed(self, where: str) -> PhasePlacement:
        """A step, with rollouts there."""
        others = self.place.ranks - self.plan.ranks if where == "apart" else self.place.ranks
        found = self._rollout(where, others) if self.how.writes else None
        times = [self._time(phase) for phase in self.phases if phase.doing != "rollout"]
        writing = list(self._writing(found, where, others)) if found else []
        first, second = _sums(writing), _sums(times)
        together = max if where == "apart" else sum
        low, middle, high = (together(ends) for ends in zip(first, second, strict=True))
        peak = max(one.memory_bytes for one in (*writing, *times))
        return PhasePlacement(
            place=where,
            plan=str(self.plan),
            training_ranks=self.plan.ranks,
            rollout_ranks=others if found else 0,
            replica=found.form if found else "",
            step_seconds=middle,
            interval=(low, high),
            memory_bytes=peak,
            fits=peak <= self.usable,
            phases=(*writing, *times),
            rollout=found,
        )

    def _time(self, phase: AlignmentPhase) -> PhaseTime:
        trains = phase.doing == "train"
        found = (self.trained if trains else self.forwards)[phase.role]
        times = self.asked.updates * self.asked.epochs if trains else 1
        low, high = found.interval
        return PhaseTime(
            what=phase.name,
            model=found.model.partition(":")[0],
            ranks=self.plan.ranks,
            seconds=times * found.step_seconds,
            low=times * low,
            high=times * high,
            memory_bytes=self._peak(phase),
        )

    def _rollout(self, where: str, ranks: int) -> Rollout:
        assert self.asked.answers is not None
        room = self._alone - (self._beside(None) if where == "together" else 0.0)
        most = (room, self.asked.slots)
        return best(self.request.model, self.place, ranks, self.asked.answers, most, self.asked.replica)

    def _writing(self, found: Rollout, where: str, ranks: int) -> Iterator[PhaseTime]:
        """Rollouts, and what comes before and after them."""
        there = self._beside(None) if where == "together" else 0.0
        peak = found.bytes + self.usable - self._alone + there
        for what, seconds, spread in (
            ("prompts", found.prefill_seconds, SPREAD),
            ("answers", found.decode_seconds, SPREAD),
            ("weights to replicas", self._moved(found, where, ranks), SPREAD),
            ("to the host and back", self._parked() if where == "host" else 0.0, 1.5),
        ):
            if seconds:
                yield PhaseTime(
                    what=what,
                    model=self.request.model.partition(":")[0],
                    ranks=ranks,
                    seconds=seconds,
                    low=seconds / spread,
                    high=seconds * spread,
                    memory_bytes=peak,
                )

    @property
    def _alone(self) -> float:
        """Bytes for rollouts on a device that has nothing else."""
        kinds = next(iter(self.trained.values())).memory.by_kind
        return self.usable - sum(kinds.get(kind, 0.0) for kind in CONTEXT)

    def _moved(self, found: Rollout, where: str, ranks: int) -> float:
        """Weights from where they are trained to replicas: gathered on the same devices, or sent to others."""
        size, everybody = found.weights_bytes, Group(self.place.ranks)
        if where == "apart":
            return collective_seconds("broadcast", size, everybody, self.place).seconds
        return collective_seconds("all-gather", size / self.place.ranks, everybody, self.place).seconds

    def _parked(self) -> float:
        """What training keeps, to the host and back over each device's own link."""
        return 2 * self._beside(None) / link(self.place.device.host_link).bandwidth


def _sums(phases: list[PhaseTime]) -> tuple[float, float, float]:
    """The low end, the middle and the high end of phases one after the other."""
    return (
        sum(one.low for one in phases),
        sum(one.seconds for one in phases),
        sum(one.high for one in phases),
    )


def _notes(asked: AlignmentQuestion, how: AlignmentMethod) -> Iterator[str]:
    if how.writes:
        yield (
            "rollouts are a roofline of decoding, without an engine's own scheduler; their interval is a factor of "
            f"{SPREAD:g} either way, within which published rates lie (docs/align.md)"
        )
        if not asked.padded:
            yield "rows of training are as long as answers are in the mean: their tokens one after the other"
    roles = {phase.role for phase in how.phases}
    if "reference" in roles and asked.request.plan is not None and asked.request.plan.policy(Lora).rank:
        yield "the reference is the policy without its adapters: it takes time, and no memory"
    for role in sorted(roles & {*SCORING}):
        if role not in dict(asked.models) and any(not one.optional for one in how.phases if one.role == role):
            yield f"the {role} is taken to be as large as the policy: --{role} names another"
