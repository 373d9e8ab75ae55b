"""How long a step takes under a plan, what memory each rank needs, and what limits it."""

from __future__ import annotations

from collections import Counter, defaultdict

from foretell.cost.kernels import update_seconds
from foretell.cost.memory import memory
from foretell.cost.slots import Parts, Slots
from foretell.hardware.cluster import Cluster
from foretell.model.totals import totals
from foretell.oracle.explain import Bottleneck, bottlenecks
from foretell.plan.facts import facts
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.program.action import Communicate, Update
from foretell.program.lower import lower
from foretell.program.program import Program, RankKind
from foretell.timeline.compose import Rank, compose
from foretell.timeline.observation import Observation
from foretell.units import at_least

BAND = 1.25
"""A declared prior, until bands are learnt from studies: the truth is taken to lie within this factor."""

USABLE = 0.97
"""Share of a device's memory that a run can fill before the allocator fails."""


class Prediction(Observation, frozen=True, kw_only=True):
    """An observation that was not made yet, with how far it can be trusted."""

    model: str
    plan: str
    trainer: str
    cluster: str
    batch: int
    ranks: int
    microbatches: int
    samples_per_second: float
    tokens_per_second: float  # 0 where samples are no sequences
    model_flops: float  # of a step, without what runs again
    utilisation: float  # of the peak of all ranks, by model flops
    interval: tuple[float, float]  # seconds
    fits: bool
    capacity: float  # bytes of a device
    bottlenecks: tuple[Bottleneck, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]


def predict(setting: Setting, cluster: Cluster) -> Prediction:
    """Predict one step of a plan that fits."""
    program = lower(setting)
    oracle = _Oracle(program, setting, cluster)
    usable = setting.trainer.memory.usable * cluster.device.memory_bytes
    used = memory(program, setting, usable)
    step, breakdown = oracle.step()
    device = cluster.device
    flops = _model_flops(setting)
    tokens = facts(setting.graph).sequence * setting.job.batch
    return Prediction(
        step_seconds=step,
        memory_bytes=used.device,
        memory=used,
        breakdown=breakdown,
        model=program.model,
        plan=program.plan,
        trainer=program.trainer,
        cluster=cluster.text,
        batch=program.batch,
        ranks=program.ranks,
        microbatches=program.microbatches,
        samples_per_second=program.batch / step,
        tokens_per_second=tokens / step,
        model_flops=flops,
        utilisation=flops / (step * program.ranks * device.matrix_rate(oracle.form.kernels)),
        interval=(step / BAND, step * BAND),
        fits=used.least <= usable,
        capacity=device.memory_bytes,
        bottlenecks=tuple(bottlenecks(breakdown, step, used, device.memory_bytes)),
        provenance=oracle.provenance(),
        notes=program.notes,
    )


def _model_flops(setting: Setting) -> float:
    """Matrix work of a step, forward and backward, that the model itself needs."""
    needs = totals(setting.graph)
    return float((needs.forward.matrix + needs.backward.matrix) * setting.plan.microbatches)


class _Oracle:
    """One program on one cluster."""

    def __init__(self, program: Program, setting: Setting, cluster: Cluster) -> None:
        self.program, self.cluster = program, cluster
        self.form = setting.plan.policy(Precision).format
        self.slots = Slots(program, setting, cluster)
        self.trainer = self.slots.trainer

    def step(self) -> tuple[float, dict[str, float]]:
        """Seconds of the step, and what they are on the rank that ends last."""
        ranks = compose(self.program, self.slots)
        tied = [self._tied(rank.kind) for rank in ranks]
        meet = max((rank.free for rank, sums in zip(ranks, tied, strict=True) if sums), default=0.0)
        ends: list[float] = []
        finishes: list[Parts] = []
        for rank, sums in zip(ranks, tied, strict=True):
            finishes.append(self._finish(rank.kind, sums))
            ends.append((meet if sums else rank.free) + sum(finishes[-1].values()))
        last = max(range(len(ends)), key=lambda at: ends[at])
        return ends[last], self._breakdown(ranks[last], finishes[last], ends[last])

    def provenance(self) -> dict[str, str]:
        """How each part of the answer was obtained."""
        return {
            "compute": "kernel models with the device's data sheet",
            "communication": "collective models with the links' figures",
            "host": f"constants of the trainer {self.trainer.name}",
            "memory": "lifetimes of the program, constants of the trainer",
            "interval": f"a declared prior: a factor of {BAND} either way",
        }

    # once a step

    def _tied(self, kind: RankKind) -> list[Communicate]:
        """Sums of gradients of weights that several stages hold; they wait for each other."""
        found = (one for at in kind.stages for one in self.program.stages[at].finish.communications())
        return [one for one in found if one.what == "weight gradients" and one.axes == ("pp",)]

    def _finish(self, kind: RankKind, tied: list[Communicate]) -> Parts:
        """What a rank does after its gradients are summed over the data axis."""
        parts: Parts = defaultdict(float)
        for at in kind.stages:
            for action in self.program.stages[at].finish.actions:
                if isinstance(action, Update):
                    self._update(action, parts)
                elif isinstance(action, Communicate) and (action.what != "weight gradients" or action in tied):
                    parts[_exposed(action)] += self.slots.prices.message(action)
            parts["other"] += self.slots.costs[at].finish.copies
        return parts

    def _update(self, action: Update, parts: Parts) -> None:
        """The optimizer's step; the host has waited for gradients, so it is not ahead."""
        price = update_seconds(action, self.cluster.device, self.form)
        launched = 0.0 if self.slots.soft else self.trainer.host.launch * price.launches
        parts["optimizer"] += price.seconds
        parts["host"] += at_least(launched - price.seconds, 0.0)

    # what it is made of

    def _breakdown(self, rank: Rank, finish: Parts, total: float) -> dict[str, float]:
        found: Parts = defaultdict(float)
        beside: Parts = defaultdict(float)
        for (at, kind), times in Counter((slot.stage, slot.kind) for slot in rank.kind.slots).items():
            one = self.slots.slot(at, kind)
            _add(found, one.parts(), times)
            _add(beside, one.beside, times)
        for at in rank.kind.stages:
            for message in self.slots.once(at):
                beside[_exposed(message)] += self.slots.prices.message(message)
        _add(found, beside, rank.exposed / (sum(beside.values()) or 1.0))  # axes share one queue: each its part of it
        _add(found, finish)
        found["host"] += rank.late
        found["bubble"] = at_least(total - sum(found.values()), 0.0)
        return {name: seconds for name, seconds in found.items() if seconds}


def _exposed(message: Communicate) -> str:
    return f"exposed.{'+'.join(message.axes)}"


def _add(to: Parts, parts: Parts, times: float = 1.0) -> None:
    for name, seconds in parts.items():
        to[name] += seconds * times
