"""How long a step takes under a plan, what memory each rank needs, and what limits it."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

import msgspec

from foretell.cost.kernels import update_seconds
from foretell.cost.memory import memory
from foretell.cost.stage import Cost, Prices, StageCost
from foretell.hardware.cluster import Cluster
from foretell.model.totals import totals
from foretell.oracle.explain import Bottleneck, bottlenecks
from foretell.plan.facts import facts
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.trainer import Trainer, look_up
from foretell.program.action import Communicate, Update
from foretell.program.lower import lower
from foretell.program.program import Program, RankKind
from foretell.timeline.compose import SlotTimes, compose
from foretell.timeline.observation import Observation

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


class Slots(NamedTuple):
    """Times of one stage's slots, with what they are made of."""

    times: SlotTimes
    forward: dict[str, float]
    backward: dict[str, float]


def predict(setting: Setting, cluster: Cluster) -> Prediction:
    """Predict one step of a plan that fits."""
    program = lower(setting)
    oracle = _Oracle(program, setting, cluster)
    used = memory(program, setting)
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
        fits=used.device <= USABLE * device.memory_bytes,
        capacity=device.memory_bytes,
        bottlenecks=tuple(bottlenecks(breakdown, step, used, device.memory_bytes)),
        provenance=oracle.provenance(),
        notes=program.notes,
    )


def _model_flops(setting: Setting) -> float:
    """Matrix work of a step, forward and backward, that the model itself needs."""
    needs = totals(setting.graph)
    return float((needs.forward.matrix + needs.backward.matrix) * setting.plan.microbatches)


def _as_executed(setting: Setting) -> Trainer:
    """The trainer with the way of starting kernels that the plan says; a recorded step costs the host nothing."""
    mode = setting.plan.policy(Execution).mode
    if mode == "trainer":
        return setting.trainer
    host = setting.trainer.host
    if mode == "captured":
        host = msgspec.structs.replace(host, launch=0.0, layer=0.0)
    return msgspec.structs.replace(setting.trainer, execution=mode, host=host)


class _Oracle:
    """One program on one cluster."""

    def __init__(self, program: Program, setting: Setting, cluster: Cluster) -> None:
        self.program, self.setting, self.cluster = program, setting, cluster
        self.trainer: Trainer = _as_executed(setting)
        self.form = setting.plan.policy(Precision).format
        self.prices = Prices(program, cluster, self.form, self.trainer)
        self.costs = [self.prices.stage(stage) for stage in program.stages]
        self.pipelined = len(program.kinds) > 1

    def step(self) -> tuple[float, dict[str, float]]:
        """Seconds of the step, and what they are on the rank that ends last."""
        slots = [self._slots(at, cost) for at, cost in enumerate(self.costs)]
        stages = self.program.stages
        composed = compose(
            [kind.slots for kind in self.program.kinds],
            [one.times for one in slots],
            [stage.before for stage in stages],
            [stage.after for stage in stages],
        )
        finishes = [self._finish(kind) for kind in self.program.kinds]
        ends = [end + sum(finish.values()) for end, finish in zip(composed.ends, finishes, strict=True)]
        last = max(range(len(ends)), key=lambda at: ends[at])
        breakdown = self._breakdown(self.program.kinds[last], slots, finishes[last], ends[last])
        return ends[last], breakdown

    def provenance(self) -> dict[str, str]:
        """How each part of the answer was obtained."""
        return {
            "compute": "kernel models with the device's data sheet",
            "communication": "collective models with the links' figures",
            "host": f"constants of the trainer {self.trainer.name}",
            "memory": "lifetimes of the program, constants of the trainer",
            "interval": f"a declared prior: a factor of {BAND} either way",
        }

    # one slot

    def _slots(self, at: int, cost: StageCost) -> Slots:
        forward, backward = self._parts(cost.forward), self._parts(cost.backward)
        device = sum(forward.values()) + sum(backward.values())
        fixed = self.trainer.host.device_layer * cost.layers
        whole = self._with_host(device + fixed, cost)
        excess = whole - device
        for parts in (forward, backward):  # the host's lead or lag is shared out like the work
            share = sum(parts.values()) / device if device else 0.5
            parts["host"] = excess * share
        late = cost.backward.weight_gradient
        total = sum(backward.values())
        times = SlotTimes(
            forward=sum(forward.values()),
            backward=total,
            input_gradient=total - late,
            weight_gradient=late,
            send_forward=sum(cost.forward.transfers.values()),
            send_backward=sum(cost.backward.transfers.values()),
        )
        return Slots(times, forward, backward)

    def _parts(self, cost: Cost) -> dict[str, float]:
        """Seconds of a pass by what they are spent on."""
        parts: dict[str, float] = defaultdict(float)
        parts["forward"] += cost.forward
        parts["backward"] += cost.input_gradient + cost.weight_gradient
        parts["recompute"] += cost.recompute
        parts["other"] += cost.copies
        for axis, seconds in cost.waits.items():
            parts[f"exposed.{axis}"] += seconds
        for axis, seconds in cost.hides.items():
            parts[f"exposed.{axis}"] += max(0.0, seconds - self._overlap() * cost.compute)
        return parts

    def _overlap(self) -> float:
        """Share of the computation behind which messages for weights can hide."""
        said = self.setting.plan.policy(Overlap).when
        if said != "trainer":
            return 1.0 if said == "always" else 0.0
        gradients = self.trainer.gradients
        table = gradients.overlap_pipeline if self.pipelined else gradients.overlap
        data = self.setting.plan.axis("dp")
        return look_up(table, getattr(data, "storage", "replicated"))

    def _with_host(self, device: float, cost: StageCost) -> float:
        """The later of the host's and the device's time for one micro-batch, forward and backward."""
        host = self._host(cost)
        sharp = self.trainer.host.sharpness
        if math.isinf(sharp) or not host:
            return max(device, host)
        return (device**sharp + host**sharp) ** (1 / sharp)

    def _host(self, cost: StageCost) -> float:
        constants = self.trainer.host
        tensor = self.setting.plan.axis(Tensor)
        ranks = tensor.ranks if tensor else 1
        launches = cost.forward.launches + cost.backward.launches
        layers = cost.layers * constants.layer
        if cost.backward.recompute and not constants.layer_recomputes:
            layers *= 4 / 3
        grown = (constants.launch * launches + layers) * (1 + constants.tensor_growth * math.log2(ranks))
        floor = 0.0
        if self.pipelined and self.cluster.nodes > 1:
            floor = cost.layers * (constants.floor + constants.floor_tensor * ranks)
        return max(grown + constants.microbatch, floor)

    # once a step

    def _finish(self, kind: RankKind) -> dict[str, float]:
        """What a rank does after its last slot."""
        parts: dict[str, float] = defaultdict(float)
        for at in kind.stages:
            stage, cost = self.program.stages[at], self.costs[at]
            hidden = self._overlap() * cost.backward.compute
            for action in stage.finish.actions:
                if isinstance(action, Update):
                    parts["optimizer"] += update_seconds(action, self.cluster.device, self.form).seconds
                elif isinstance(action, Communicate):
                    seconds = self.prices.message(action)
                    axis = f"exposed.{'+'.join(action.axes)}"
                    if action.what == "weight gradients":
                        used = min(hidden, seconds)
                        hidden -= used
                        seconds -= used
                    parts[axis] += seconds
            parts["other"] += cost.finish.copies
        return parts

    def _breakdown(
        self, kind: RankKind, slots: list[Slots], finish: dict[str, float], total: float
    ) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for slot in kind.slots:
            one = slots[slot.stage]
            parts = one.forward if slot.kind == "F" else one.backward
            share = 1.0 if slot.kind in ("F", "B") else one.times.of(slot.kind) / (one.times.backward or 1.0)
            for name, seconds in parts.items():
                found[name] += seconds * share
        for name, seconds in finish.items():
            found[name] += seconds
        found["bubble"] = max(0.0, total - sum(found.values()))
        return {name: seconds for name, seconds in found.items() if seconds}
