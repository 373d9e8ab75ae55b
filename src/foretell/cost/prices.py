"""What each stage of a program costs: device seconds, host launches and communication, slot by slot.

Every distinct body is priced once; a stage adds its bodies up as often as it takes them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from foretell.cost.collectives import CollectivePrice, collective_seconds, library_of
from foretell.cost.dispatched import dispatched_seconds
from foretell.cost.fabric import Group, sharing
from foretell.cost.host import host_of_update, host_update_seconds
from foretell.cost.kernels import KernelPrice as KernelPrice
from foretell.cost.kernels import chains, kernel_seconds, update_seconds
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.power_limit import among
from foretell.cost.splits import IMAGES, around_seconds, mesh_splits, side_by_side, split_seconds, splits_layers
from foretell.cost.stood_in import message_seconds
from foretell.cost.tp_overlap import hidden_seconds
from foretell.cost.wrapped_host import BARE, Wraps, around_message, around_operator, around_region
from foretell.hardware.cluster import Cluster, Level
from foretell.model.operator import OperatorPart
from foretell.plan.axis_names import AxisName
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Actions, Communicate, Compute, Copy, TrafficKind, Update
from foretell.program.expanded import Axis, belongs
from foretell.units import WIDTH, Quantity, at_least, product

Parts: TypeAlias = dict[str, Quantity]
"""Seconds by what they are spent on: the keys of a breakdown."""

HIDES = (TrafficKind.WEIGHTS, TrafficKind.WEIGHT_GRADIENTS)
"""What travels because of weights may run behind computation; activations are waited for."""

INTERRUPTED = "interrupted"
"""What a calibration calls the seconds that a message takes of a processor's rank beside its way over a link."""


@dataclass
class Cost:
    """Seconds and launches of some actions on one rank."""

    forward: Quantity = 0.0
    input_gradient: Quantity = 0.0
    weight_gradient: Quantity = 0.0
    recompute: Quantity = 0.0
    launches: Quantity = 0.0  # and in their time what the host does around modules
    copies: Quantity = 0.0
    # messages: seconds by axis, or by level of the cluster
    waits: dict[str, Quantity] = field(default_factory=lambda: defaultdict(float))  # of activations
    levels: dict[str, Quantity] = field(default_factory=lambda: defaultdict(float))  # the same, by level
    transfers: dict[str, Quantity] = field(default_factory=lambda: defaultdict(float))  # sends to and from other stages
    rows: Quantity = 0.0  # seconds of rows that go to experts and home, where those of a pair of passes run beside it

    def add(self, other: Cost, times: float = 1.0) -> None:
        self.forward += other.forward * times
        self.input_gradient += other.input_gradient * times
        self.weight_gradient += other.weight_gradient * times
        self.recompute += other.recompute * times
        self.launches += other.launches * times
        self.copies += other.copies * times
        self.rows += other.rows * times
        for name in ("waits", "levels", "transfers"):
            mine: dict[str, Quantity] = getattr(self, name)
            for axis, seconds in getattr(other, name).items():
                mine[axis] += seconds * times

    @property
    def compute(self) -> Quantity:
        return self.forward + self.input_gradient + self.weight_gradient + self.recompute

    @property
    def device(self) -> Quantity:
        """Compute, and messages that are waited for."""
        return self.compute + sum(self.waits.values())


def parts_of(cost: Cost) -> Parts:
    """The device's seconds, by what they are spent on."""
    parts: Parts = defaultdict(float)
    parts["forward"] = cost.forward
    parts["backward"] = cost.input_gradient + cost.weight_gradient
    parts["recompute"] = cost.recompute
    parts["other"] = cost.copies
    for axis, seconds in cost.waits.items():
        parts[f"exposed.{axis}"] += seconds
    return parts


class BodyCost(NamedTuple):
    """One body: what must be done in its turn, and gradients of weights, which may come later (in W)."""

    now: Cost
    late: Cost

    def of(self, kind: str) -> Cost:
        """What of it runs in a kind of slot."""
        if kind in ("I", "W"):
            return self.now if kind == "I" else self.late
        both = Cost()
        both.add(self.now)
        both.add(self.late)
        return both


class Prices:
    """Prices of one program on one cluster."""

    def __init__(
        self,
        axes: Iterable[Axis],
        cluster: Cluster,
        form: Format,
        trainer: Trainer,
        messages: dict[Any, Quantity] | None = None,
    ) -> None:
        self.cluster, self.form, self.trainer = cluster, form, trainer
        self.device = cluster.device
        self.axes = {axis.name: axis for axis in axes}
        self.soft = math.isfinite(trainer.host.sharpness)
        self.splits = mesh_splits(trainer.splits, self.axes)
        self.key: Any = (cluster, form, trainer, self.splits)
        along = self.axes.get(AxisName.PP)
        self.strides_along = (along.ranks, along.stride) if along else ()
        self.strides = tuple((axis.name, axis.ranks, axis.stride) for axis in self.axes.values())
        self._groups: dict[tuple[tuple[str, ...], int], tuple[Group, Level]] = {}
        self._messages: dict[Any, Quantity] = {} if messages is None else messages  # others' on this cluster too

    def body(self, actions: Actions, known: dict[Any, Any] | None = None, wraps: Wraps = BARE) -> BodyCost:
        """What actions cost. `known`: prices of computations that other bodies have too; `wraps`: what the host has
        around them."""
        price = self._kernel if known is None else self._remembered(actions, known)
        cost, fusion = BodyCost(Cost(), Cost()), self.trainer.fusion
        run = list(chains(actions, self.trainer.execution, fusion.norms_take_in, fusion.complex_rotary))
        price = among(run, price, self.device, self.form)
        hidden = hidden_seconds(run, self.trainer.tensor, lambda one: price(one).seconds, self.message)
        wrapped = self.trainer.wrapped
        cost.now.launches += around_region(wraps, wrapped)
        for at, action in enumerate(run):
            if isinstance(action, Compute):
                own = cost.late if belongs(action, "W") else cost.now
                found = price(action)
                self._compute(action, found, own)
                own.launches += around_operator(action, found.launches, wraps, wrapped)
            elif isinstance(action, Communicate):
                self._communicate(action, cost.late if belongs(action, "W") else cost.now, hidden.get(at, 0.0))
            elif isinstance(action, Copy):
                cost.now.copies += action.bytes / self.host_bandwidth
        return cost

    def _kernel(self, action: Compute) -> KernelPrice:
        return kernel_seconds(action, self.device, self.form, self.trainer)

    def _remembered(self, actions: Actions, known: dict[Any, Any]) -> Callable[[Compute], KernelPrice]:
        """Prices of computations by the identity of their costs, which are kept, so that no others get it.

        Those that a compiler puts together are this body's alone.
        """
        own = {id(one.cost) for one in actions if isinstance(one, Compute)}
        found: dict[int, tuple[OperatorPart, KernelPrice]] = known.setdefault(
            (self.device, self.form, self.trainer), {}
        )

        def price(action: Compute) -> KernelPrice:
            key = id(action.cost)
            if key not in own:
                return self._kernel(action)
            if key not in found:
                found[key] = action.cost, self._kernel(action)
            return found[key][1]

        return price

    @property
    def host_bandwidth(self) -> float:
        from foretell.hardware.members import link

        return link(self.device.host_link).bandwidth

    def _compute(self, action: Compute, price: KernelPrice, cost: Cost) -> None:
        cost.launches += price.launches
        phase = "recompute" if action.again else action.part
        setattr(cost, phase, getattr(cost, phase) + price.seconds)

    def hidden(self, actions: Sequence[object]) -> dict[int, Quantity]:
        """Seconds of a body's messages that run beside its products, by their place in it."""
        price = among(actions, self._kernel, self.device, self.form)
        return hidden_seconds(actions, self.trainer.tensor, lambda one: price(one).seconds, self.message)

    def _communicate(self, message: Communicate, cost: Cost, hidden: Quantity) -> None:
        """Messages for weights are no part of a body's price: see `care`."""
        axis = "+".join(message.axes)
        if message.kind == "send":
            cost.transfers[axis] += self.message(message)
        elif message.kind != "receive" and message.what not in HIDES:
            seconds = self.message(message)
            cost.waits[axis] += seconds - hidden
            if self.trainer.experts.beside and AxisName.EP in message.axes and message.kind == "all-to-all":
                cost.rows += seconds
            cost.levels[self.level(message)] += seconds
            cost.launches += around_message(message, self.trainer.wrapped)
            self._around(message, cost)

    def waited(self, message: Communicate) -> Quantity:
        """Seconds of a layer's message where it is certain that nothing runs beside it, else none."""
        if message.kind in ("send", "receive") or message.what in HIDES:
            return 0.0
        product = message.axes == (AxisName.TP,) and (self.trainer.tensor.overlap or self.trainer.tensor.pieces)
        rows = self.trainer.experts.beside and AxisName.EP in message.axes and message.kind == "all-to-all"
        return 0.0 if product or rows else self.message(message)

    def _around(self, message: Communicate, cost: Cost) -> None:
        seconds = self.around(message)
        if message.what == TrafficKind.ACTIVATIONS:
            cost.forward += seconds
        else:
            cost.input_gradient += seconds

    def around(self, message: Communicate) -> Quantity:
        """Seconds that a rank works around a message: of axes that split layers, and of keys that go round."""
        return around_seconds(message, self.trainer.splits, self.splits) + message.around / memory_rate(self.device)

    def message(self, message: Communicate) -> Quantity:
        """Seconds of one message or collective, averaged over the steps between two of them."""
        if self._in_two_sums(message):
            return sum(self.message(part) for part in self._two_sums(message))
        group = self.group(message)
        payload = message.payload
        size = payload if isinstance(payload, int | float) else payload.tobytes()
        leaders = self._by_leaders(message)
        about = (message.kind, message.messages, message.what, message.axes, message.slices, message.rows)
        key = (about, size, group, leaders, self.splits)
        if key not in self._messages:
            self._messages[key] = self._routed(message, group) if message.rows else self._sent(message, group, leaders)
        return self._messages[key] / message.every

    def _sent(self, message: Communicate, group: Group, leaders: bool) -> Quantity:
        servers = message.messages if message.kind in ("push", "pull") else 1
        price = collective_seconds(
            message.kind,
            message.payload,
            group,
            self.cluster,
            messages=1 if servers > 1 else message.messages,
            sharing=1 if leaders else sharing(group, self.cluster),
            servers=servers,
        )
        cut = self.trainer.storage.slice * message.slices * group.ranks
        return self._in_a_step(message, group, price) + cut + self._interrupted(message, group)

    def _routed(self, message: Communicate, group: Group) -> Quantity:
        """Rows of experts, by another way of dispatch than row by row."""
        assert message.rows

        def collective(kind: str, payload: Quantity, among: Group) -> Quantity:
            shared = sharing(among, self.cluster)
            return collective_seconds(kind, payload, among, self.cluster, sharing=shared).seconds

        return dispatched_seconds(message.rows, message.payload, group, self.cluster, collective)

    def asked(self, message: Communicate) -> Quantity:
        """Seconds of a pipeline's message from when its receiver asks for it, if the sender waits for that.

        Stages ask for what they receive when they have nothing else to do: a message that is ready long before does
        not travel beside their computing.
        """
        if not library_of(self.cluster).rendezvous:
            return 0.0
        sent = msgspec.structs.replace(message, kind="send")
        return self.message(sent) + collective_seconds("send", 1, self.group(sent), self.cluster).latency

    @property
    def led(self) -> bool:
        """Whether messages of some axes go through leaders."""
        return "ps.group" in self.axes or (self.trainer.splits.leaders and IMAGES in self.axes)

    def _by_leaders(self, message: Communicate) -> bool:
        """Whether one rank speaks for others of its node: for all that split an image, or under one server."""
        under_a_server = message.axes == ("ps",) and "ps.group" in self.axes
        return under_a_server or (
            self.trainer.splits.leaders and message.axes == (AxisName.DP,) and IMAGES in self.axes
        )

    def _in_two_sums(self, message: Communicate) -> bool:
        """Whether gradients are summed among those that split an image first, and by their leaders then."""
        sums = message.kind == "all-reduce" and message.what in HIDES
        return sums and self.trainer.splits.leaders and {AxisName.DP, IMAGES} <= set(message.axes)

    def _two_sums(self, message: Communicate) -> Iterator[Communicate]:
        """Both sums. All others of a group sum beside the leaders, each over its own port: that takes no longer."""
        for axes in (tuple(name for name in message.axes if name != AxisName.DP), (AxisName.DP,)):
            yield msgspec.structs.replace(message, axes=axes, ranks=product(self.axes[name].ranks for name in axes))

    def _in_a_step(self, message: Communicate, group: Group, price: CollectivePrice) -> Quantity:
        """What a benchmark's collective costs inside a step, where it leaves the node.

        Layers wait for each hop of a tensor axis with their host (a trainer's constant); gradients reach a
        smaller share of the network than a benchmark does.
        """
        if library_of(self.cluster).free:
            return price.seconds + message_seconds(message, WIDTH[self.form.activation], self.cluster)
        if message.kind == "send" and self.trainer.pipeline.sends:
            return at_least(price.seconds, message.sent / self.trainer.pipeline.sends)
        inside = self.cluster.level_of(group.ranks, group.stride) == self.cluster.node
        if splits_layers(message):
            return split_seconds(message, price.seconds, self.trainer.splits, inside)
        if inside:
            return price.seconds
        if AxisName.TP in message.axes:
            return price.seconds + at_least(self.trainer.tensor.hop * (group.ranks - 1) - price.latency, 0.0)
        if message.what in HIDES and library_of(self.cluster).contends:
            waited = self.trainer.gradients.hop * (group.ranks - 1)
            rate = self.trainer.gradients.rate * side_by_side(message, self.trainer.splits, self.splits)
            return price.seconds + price.bandwidth * (1 / rate - 1) + at_least(waited - price.latency, 0.0)
        return price.seconds

    def _interrupted(self, message: Communicate, group: Group) -> float:
        """Seconds that a message between machines takes of the computing of a processor's rank. Those inside a machine
        were timed with it, and sums of buckets travel beside."""
        known = self.device.measured.get(INTERRUPTED) if library_of(self.cluster).on_cores else None
        beside = message.what in HIDES and message.kind == "all-reduce"
        if known is None or beside or self.cluster.level_of(group.ranks, group.stride) == self.cluster.node:
            return 0.0
        return self.device.launch_seconds * known.factor(1, 1)

    def update(self, action: Update, in_shares: bool) -> tuple[float, float]:
        """The optimizer's step: seconds of the device (or the host, which it waits for), and of launching it."""
        if action.on_host:
            ranks = min(self.cluster.ranks_per_node, product(axis.ranks for axis in self.axes.values()))
            return host_update_seconds(action.cost.read + action.cost.written, ranks), 0.0
        price = update_seconds(action, self.device, self.form)
        wrapped = in_shares or AxisName.TP in self.axes
        launched = host_of_update(action, price.launches, self.form, self.trainer, wrapped)
        return price.seconds, 0.0 if self.soft else launched

    def group(self, message: Communicate) -> Group:
        """The ranks that a message is among; of neighbours the whole axis, since the slowest pair counts."""
        ranks = self.axes[AxisName.PP].ranks if message.kind in ("send", "receive") else message.ranks
        key = (message.axes, ranks)
        if key not in self._groups:
            stride = min(self.axes[name].stride for name in message.axes)
            group = Group(min(ranks, self.cluster.ranks // stride), stride)
            self._groups[key] = group, self.cluster.level_of(group.ranks, group.stride)
        return self._groups[key][0]

    def level(self, message: Communicate) -> str:
        """The level of the cluster that a message takes up."""
        ranks = self.axes[AxisName.PP].ranks if message.kind in ("send", "receive") else message.ranks
        self.group(message)
        return self._groups[message.axes, ranks][1].name
