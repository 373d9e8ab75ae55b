"""What each stage of a program costs: device seconds, host launches and communication, slot by slot.

Every distinct body is priced once; a stage adds its bodies up as often as it takes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from foretell.cost.collectives import Price, collective_seconds
from foretell.cost.fabric import Group, sharing
from foretell.cost.kernels import chains, kernel_seconds
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Actions, Communicate, Compute, Copy
from foretell.program.program import Program, Stage

IN_A_STEP = 0.4
"""Share of a benchmark's rate that sums of gradients reach between nodes inside a step: fits to 44 published A100
runs of Megatron-DeepSpeed (37.6 of 100 GB/s a node) and 481 H100 runs of nanotron (122 of 400), over 0.86 and 0.92."""

HIDES = ("weights", "weight gradients")
"""What travels because of weights may run behind computation; activations are waited for."""


@dataclass
class Cost:
    """Seconds and launches of some actions on one rank."""

    forward: float = 0.0
    input_gradient: float = 0.0
    weight_gradient: float = 0.0
    recompute: float = 0.0
    launches: float = 0.0
    waits: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # axis to seconds of messages waited for
    hides: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # axis to seconds that may be hidden
    transfers: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # sends to and from other stages
    copies: float = 0.0

    def add(self, other: Cost, times: float = 1.0) -> None:
        self.forward += other.forward * times
        self.input_gradient += other.input_gradient * times
        self.weight_gradient += other.weight_gradient * times
        self.recompute += other.recompute * times
        self.launches += other.launches * times
        self.copies += other.copies * times
        for name in ("waits", "hides", "transfers"):
            mine: dict[str, float] = getattr(self, name)
            for axis, seconds in getattr(other, name).items():
                mine[axis] += seconds * times

    @property
    def compute(self) -> float:
        return self.forward + self.input_gradient + self.weight_gradient + self.recompute

    @property
    def device(self) -> float:
        """Compute, and messages that are waited for."""
        return self.compute + sum(self.waits.values())


class StageCost(NamedTuple):
    """One stage: both passes of one micro-batch, and what comes once a step."""

    forward: Cost
    backward: Cost
    finish: Cost
    layers: int  # how many it has


class Prices:
    """Prices of one program on one cluster."""

    def __init__(self, program: Program, cluster: Cluster, form: Format, trainer: Trainer) -> None:
        self.program, self.cluster, self.form, self.trainer = program, cluster, form, trainer
        self.device = cluster.device
        self.axes = {axis.name: axis for axis in program.axes}
        self._bodies: dict[int, Cost] = {}
        self._messages: dict[tuple[str, float, Group, int], float] = {}

    def stage(self, stage: Stage) -> StageCost:
        forward, backward = Cost(), Cost()
        for body, times in stage.passes("F"):
            forward.add(self.body(body.actions), times)
        for body, times in stage.passes("B"):
            backward.add(self.body(body.actions), times)
        layers = sum(layer.times for layer in stage.layers if layer.run.layer)
        return StageCost(forward, backward, self.body(stage.finish.actions), layers)

    def body(self, actions: Actions) -> Cost:
        key = id(actions)
        if key not in self._bodies:
            self._bodies[key] = self._priced(actions)
        return self._bodies[key]

    def _priced(self, actions: Iterable[object]) -> Cost:
        cost = Cost()
        for action in chains(actions, self.trainer.execution):
            if isinstance(action, Compute):
                self._compute(action, cost)
            elif isinstance(action, Communicate):
                self._communicate(action, cost)
            elif isinstance(action, Copy):
                cost.copies += action.bytes / self.host_bandwidth
        return cost

    @property
    def host_bandwidth(self) -> float:
        from foretell.hardware.members import link

        return link(self.device.host_link).bandwidth

    def _compute(self, action: Compute, cost: Cost) -> None:
        price = kernel_seconds(action, self.device, self.form, self.trainer)
        cost.launches += price.launches
        phase = "recompute" if action.again else action.part
        setattr(cost, phase, getattr(cost, phase) + price.seconds)

    def _communicate(self, message: Communicate, cost: Cost) -> None:
        seconds = self.message(message)
        axis = "+".join(message.axes)
        if message.kind in ("send", "receive"):
            if message.kind == "send":
                cost.transfers[axis] += seconds
        elif message.what in HIDES:
            cost.hides[axis] += seconds
        else:
            cost.waits[axis] += seconds

    def message(self, message: Communicate) -> float:
        """Seconds of one message or collective, averaged over the steps between two of them."""
        group = self.group(message)
        key = (message.kind, message.payload, group, message.messages)
        if key not in self._messages:
            servers = message.messages if message.kind in ("push", "pull") else 1
            price = collective_seconds(
                message.kind,
                message.payload,
                group,
                self.cluster,
                messages=1 if servers > 1 else message.messages,
                sharing=sharing(group, self.cluster),
                servers=servers,
            )
            self._messages[key] = self._in_a_step(message, group, price)
        return self._messages[key] / message.every

    def _in_a_step(self, message: Communicate, group: Group, price: Price) -> float:
        """What a benchmark's collective costs inside a step, where it leaves the node.

        Layers wait for each hop of a tensor axis with their host (a trainer's constant); gradients reach a
        smaller share of the network than a benchmark does.
        """
        if self.cluster.level_of(group.ranks, group.stride) == self.cluster.node:
            return price.seconds
        if "tp" in message.axes:
            return price.seconds + max(0.0, self.trainer.tensor.hop * (group.ranks - 1) - price.latency)
        if message.what in HIDES:
            return price.seconds + price.bandwidth * (1 / IN_A_STEP - 1)
        return price.seconds

    def group(self, message: Communicate) -> Group:
        """The ranks that a message is among; of neighbours the whole axis, since the slowest pair counts."""
        stride = min(self.axes[name].stride for name in message.axes)
        ranks = self.axes["pp"].ranks if message.kind in ("send", "receive") else message.ranks
        return Group(min(ranks, self.cluster.ranks // stride), stride)

    def stages(self) -> Iterator[StageCost]:
        for stage in self.program.stages:
            yield self.stage(stage)
