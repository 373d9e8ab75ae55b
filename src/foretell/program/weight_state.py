"""The care of weights in a step: gathering them, summing gradients, updating, and what they take in memory."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from foretell.model.graph import Graph
from foretell.model.resize import skeleton
from foretell.plan.axis_names import AxisName
from foretell.plan.facts import facts
from foretell.plan.placement import PARTIAL, REPLICATED, Served
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategy import EACH_STEP, MeshAxis, Splitting
from foretell.program.action import Action, Allocate, Communicate, Copy, Free, Phase, TrafficKind, Update
from foretell.program.body import Body
from foretell.program.exchange import Exchanges
from foretell.program.sharding.transition import travel
from foretell.program.stage_weights import PersistentBytes, StageWeights, UnitBytes, beside
from foretell.program.updates import Bytes, Updated, by_rule, momentum_of
from foretell.program.weights import Weight, separable
from foretell.program.whole_states import fullest_shares
from foretell.units import ceil_div, product

Holders: TypeAlias = Mapping[tuple[int, int, int], frozenset[int]]
"""For each weight the pipeline ranks that have it."""

Names: TypeAlias = tuple[str, ...]
"""Of axes."""

PLAIN = Splitting(dim="sample")

ALIKE = ("dp", "shard", "cp")
"""Axes whose messages for weights cost the same among the same ranks."""


def plain_axes(axes: Sequence[MeshAxis], plan: Plan, graph: Graph) -> tuple[MeshAxis, ...]:
    """Axes whose ranks take samples each for themselves: nothing but the care of weights knows of the others."""
    if plan.policy(BatchNorm).synchronised or not separable(skeleton(graph)):
        return ()
    return tuple(axis for axis in axes if axis.splitting == PLAIN)


class WeightStatePlan:
    """How one trainer under one plan cares for weights."""

    def __init__(self, setting: Setting, axes: tuple[MeshAxis, ...]) -> None:
        self.setting, self.trainer, self.axes = setting, setting.trainer, axes
        plan, job = setting.plan, setting.job
        moved = (plan.policy(Offload).optimizer, plan.policy(Offload).weights)
        policies = (moved, plan.policy(Precision), plan.policy(Bucket), plan.policy(Compression))
        self.trains = trains = facts(setting.graph).trains
        # all that the care of given weights depends on
        self.key = (axes, self.trainer, job.optimizer, policies, trains)
        self.plain = tuple(axis.name for axis in plain_axes(axes, plan, setting.graph))
        self._in_shares = {axis.name: axis.storage.states for axis in axes}
        self._along: dict[tuple[Names, bool], tuple[Names, Names]] = {}
        experts = self.trainer.storage.whole_experts
        data = plan.axis(Data)
        self._whole_experts = experts == "always" or (experts == "alone" and (data is None or data.experts == 1))
        self.pipelined = any(axis.name == AxisName.PP for axis in axes)
        self.offload = setting.plan.policy(Offload)
        self.bytes = Bytes.of(setting.plan.policy(Precision).format, self.trainer, trains)
        gradients, bucket = self.trainer.gradients, setting.plan.policy(Bucket).size
        samples = product(axis.ranks for axis in axes if axis.splitting.dim == "sample")
        self.exchanges = Exchanges(
            {axis.name: axis for axis in axes},
            self.bytes.gathered,
            self.bytes.wire,
            min(gradients.first_bucket, bucket) if bucket else gradients.first_bucket,
            bucket or max(gradients.bucket, gradients.bucket_rank * samples),
            setting.plan.policy(Compression),
            *self._along_layers(),
            gradients.whole,
            self.trainer.storage.root == "modules",
        )
        self.each = gradients.each_pipeline if self.pipelined else gradients.each
        served = [axis.exchange.weights for axis in axes if isinstance(axis.exchange.weights, Served)]
        self.servers = max((where.servers for where in served), default=0)

    def _along_layers(self) -> tuple[float, bool]:
        """Bytes of a gradient that tensor ranks sum: one by one as they are made, or together as they travel."""
        made = self.setting.plan.policy(Precision).format.gradient
        each = self.trainer.tensor.sums == "each"
        return (made if each else self.bytes.wire), each

    @functools.cached_property
    def on_device(self) -> WeightStatePlan:
        """The same with nothing on the host."""
        stays = tuple(policy for policy in self.setting.plan.policies if not isinstance(policy, Offload))
        plan = msgspec.structs.replace(self.setting.plan, policies=stays)
        return WeightStatePlan(msgspec.structs.replace(self.setting, plan=plan), self.axes)

    def on_axes(self, weight: Weight, sampled: frozenset[tuple[int, int]]) -> Weight:
        """A weight of a local program with the axes along which it is summed and shared."""
        summed, shared = self.along(weight, sampled)
        whole = self._whole_experts and weight.stack > 1 and self.exchanges.stored(shared).gradients
        return weight._replace(summed=summed, shared=shared, together=weight.rows // weight.stack if whole else 1)

    def along(self, weight: Weight, sampled: frozenset[tuple[int, int]]) -> tuple[Names, Names]:
        """The axes along which a weight of a local program is summed, and those of them along which it is shared."""
        key = weight.summed, weight.key[:2] in sampled
        if key not in self._along:
            names = [name for name in self._in_shares if name in key[0] or (key[1] and name in self.plain)]
            self._along[key] = tuple(names), tuple(name for name in names if self._in_shares[name])
        return self._along[key]

    def like(self, summed: Names, shared: Names, stride: Mapping[str, int], named: bool) -> Hashable:
        """What the care of a weight along these axes depends on: groups of ranks go by their places.

        Axes that only share samples out are not told apart, unless messages go by their names.
        """
        groups = (*self.exchanges.sums(summed, shared), shared, summed)
        placed = [(self.exchanges.ranks(own), min(stride[name] for name in own)) if own else () for own in groups]
        names = [tuple(name for name in own if named or name not in ALIKE) for own in groups]
        return self.exchanges.stored(shared).name, tuple(placed), tuple(names)

    @property
    def manner(self) -> Hashable:
        """And how this plan has them cared for, all together."""
        unusual = tuple(axis for axis in self.exchanges.axes.values() if axis.exchange != EACH_STEP)
        buckets = (self.exchanges.first_bucket, self.exchanges.bucket)
        return buckets, self.pipelined, self.gathers_each, self.reshards, self.each, self._whole_experts, unusual

    def held(self, weight: Weight) -> int:
        """Elements whose states this rank holds; of servers, the one that has most."""
        part = self.exchanges.held(weight)
        return ceil_div(part, self.servers) if self.servers else part

    def _all_held(self, weights: Iterable[Weight]) -> int:
        return sum(self.held(weight) * weight.times for weight in weights)

    def _stored(self, weight: Weight) -> str:
        return self.exchanges.storage(weight).name

    def care(self, own: list[Weight], holders: Holders) -> StageWeights:
        """All that is done for the weights of a stage."""
        units = self.units(own)
        gathered = units if self.gathers_each else {}
        root = gathered.get("", [])
        each = root if self.trains or self.trainer.storage.reshard_root else []
        layers = {name: unit for name, unit in gathered.items() if name}
        kept, host = self.trainer.storage.keeps_messages, self.from_host(own)
        stays = host.pop("", [])
        sizes = {name: self.visiting_bytes(weights) for name, weights in host.items()}
        for name, unit in layers.items():
            sizes[name] = sizes.get(name, 0.0) + self.exchanges.gathered_bytes(unit)
        return StageWeights(
            layers,
            sizes,
            {name: self.exchanges.messages(unit, "zero3" in self.each) for name, unit in layers.items() if kept},
            self.reshards,
            self.trainer.storage.loss_inside,
            each,  # where nothing comes back, what is not let go after the first pass of a run stays for good
            root if self.trainer.storage.reshard_root else [],  # let go between the passes
            host,
            stays,
            self.exchanges.root_bytes(root) + self.visiting_bytes(stays),
            tuple(self.reduces(each, own)),
            tuple(self.sums(own, units)),
            tuple(self.ending(own, holders)),
        )

    # weights in shares, gathered for use

    @property
    def gathers_each(self) -> bool:
        """Whether weights in shares are gathered in each micro-batch; else once a step."""
        return self.trainer.storage.reshard_pipeline or not self.pipelined or self.offload.weights

    @property
    def reshards(self) -> bool:
        """Whether gathered weights are let go between the passes."""
        return self.pipelined or self.trainer.storage.reshard_forward or self.offload.weights

    def units(self, own: Sequence[Weight]) -> dict[str, list[Weight]]:
        """The weights that are gathered together for use: of each layer, and of all that is in none."""
        return self._together([w for w in own if w.shared and self.exchanges.storage(w).weights])

    def _together(self, weights: Sequence[Weight]) -> dict[str, list[Weight]]:
        """By layer, each as one layer has it; what is in none, or if all is one unit, as often as there is one."""
        found: dict[str, list[Weight]] = {}
        for weight in weights:
            name = "" if self.trainer.storage.unit == "model" else weight.layer
            found.setdefault(name, []).append(weight._replace(times=1) if name else weight)
        return found

    def with_gathers(self, forward: Body, backward: Body, unit: list[Weight], own: UnitBytes) -> tuple[Body, Body]:
        """A layer whose weights are gathered before each use and let go after it."""
        reshard = self.reshards
        size = self.exchanges.gathered_bytes(unit)
        name = f"{forward.name} weights"
        gather: list[Action] = [Allocate(name, size, "gathered"), *self.exchanges.gather(unit, forward.name)]
        free: list[Action] = [Free(name, size)]
        ahead = beside([*gather, *forward.actions, *(free if reshard else ())], name, own.ahead, 0.0)
        back = beside([*(gather if reshard else ()), *backward.actions, *free], name, own.next, own.sums)
        if reshard and not any(backward.computations()):  # frozen, and so is all before it
            back = list(backward.actions)
        if "zero3" in self.each:
            back += list(self.exchanges.reduce(unit, forward.name))
        return Body(forward.name, Phase.FORWARD, tuple(ahead)), Body(backward.name, Phase.BACKWARD, tuple(back))

    def gathers(self, root: list[Weight]) -> list[Action]:
        """What is in no layer is gathered at the start of a pass."""
        if not root:
            return []
        size = self.exchanges.root_bytes(root)
        return [Allocate("root weights", size, "gathered"), *self.exchanges.gather(root, "root")]

    def lets_go(self, root: list[Weight]) -> list[Action]:
        return [Free("root weights", self.exchanges.root_bytes(root))] if root else []

    # weights in host memory, which come for each use

    def from_host(self, own: Sequence[Weight]) -> dict[str, list[Weight]]:
        """The weights that come from the host together: of each layer, and of all that is in none."""
        return self._together(own if self.offload.weights else ())

    def with_copies(self, forward: Body, backward: Body, weights: list[Weight]) -> tuple[Body, Body]:
        """A layer whose weights come from the host before each use and are let go after it."""
        come, go = self.comes(forward.name, weights), self.goes(forward.name, weights)
        ahead = Body(forward.name, Phase.FORWARD, (*come, *forward.actions, *go))
        if not any(backward.computations()):  # frozen, and so is all before it
            return ahead, backward
        return ahead, Body(backward.name, Phase.BACKWARD, (*come, *backward.actions, *self.sends_out(weights), *go))

    def comes(self, name: str, weights: Sequence[Weight]) -> list[Action]:
        """Weights come, and there is room for the gradients that will go out."""
        if not weights:
            return []
        room = Allocate(f"{name} from the host", self.visiting_bytes(weights), "gathered")
        return [room, Copy("weights", False, self._resting_bytes(weights))]

    def goes(self, name: str, weights: Sequence[Weight]) -> list[Action]:
        return [Free(f"{name} from the host", self.visiting_bytes(weights))] if weights else []

    def sends_out(self, weights: Sequence[Weight]) -> list[Action]:
        """Gradients of what is in no layer go to the host after a backward pass."""
        return self._sent_out(self._leaving_bytes(weights))

    def visiting_bytes(self, weights: Sequence[Weight]) -> float:
        """What weights from the host take on the device, with their gradients before these go out."""
        return self._resting_bytes(weights) + self._leaving_bytes(weights)

    def _sent_out(self, size: float) -> list[Action]:
        return [Copy("gradients", True, size)] if size else []

    def _resting_bytes(self, weights: Sequence[Weight]) -> float:
        """Bytes of weights where they rest: shares, or whole."""
        share = ((w, self.exchanges.held(w) if self.exchanges.storage(w).weights else w.elements) for w in weights)
        return sum(elements * weight.times * (weight.width or self.bytes.weight) for weight, elements in share)

    def _leaving_bytes(self, weights: Sequence[Weight]) -> float:
        leaving = sum(self.exchanges.held(weight) * weight.times for weight in weights if self._leaves(weight))
        return leaving * self.bytes.wire

    def _leaves(self, weight: Weight) -> bool:
        """Whether its gradient goes to the host as soon as a layer has made it: nobody sums it later on the device."""
        alone = not weight.summed or (self._stored(weight) == "zero3" and "zero3" in self.each)
        return self.offload.weights and self.offload.optimizer and weight.trainable and alone

    # gradients

    def reduces(self, root: list[Weight], own: Sequence[Weight]) -> list[Action]:
        """The sums of gradients after each micro-batch's backward pass."""
        actions: list[Action] = []
        if root:
            actions += self.lets_go(root)
            actions += list(self.exchanges.reduce(root, "root")) if "zero3" in self.each else []
        now = [weight for weight in own if self._stored(weight) in self.each and self._stored(weight) != "zero3"]
        return [*actions, *self.exchanges.in_buckets(now)]

    def sums(self, own: Sequence[Weight], units: dict[str, list[Weight]]) -> Iterator[Communicate]:
        """Sum what is not summed yet."""
        times = {weight.layer: weight.times for weight in own}
        for name, unit in units.items():
            gathers = () if self.gathers_each else self.exchanges.gather(unit, name or "root")
            sums = () if "zero3" in self.each else self.exchanges.reduce(unit, name or "root")
            yield from [*gathers, *sums] * (times[name] if name else 1)
        later = [weight for weight in own if self._stored(weight) not in (*self.each, "zero3")]
        yield from self.exchanges.in_buckets(later)

    def ending(self, own: Sequence[Weight], holders: Holders) -> Iterator[Action]:
        """Sum what several stages have, update, and bring new weights to those who do not have them."""
        yield from self._tied(own, holders)
        push, pull = self.exchanges.served(own)
        yield from push
        yield from self.exchanges.gather(momentum_of(self.setting.job.optimizer, own, self.exchanges.cuts), "momentum")
        yield from self._update(own)
        yield from pull
        trained = [weight for weight in own if weight.trainable]
        apart = [weight for weight in trained if weight.shared and not self.exchanges.storage(weight).weights]
        yield from self.exchanges.gather(apart, "after the update", sliced=self.trainer.storage.slice > 0)
        yield from self.exchanges.averaged(own)
        if self.offload.weights:
            home = [weight for weight in trained if not (self.offload.optimizer and self._updated_at_rest(weight))]
            yield from self._copied(True, self._resting_bytes(home))

    def _updated_at_rest(self, weight: Weight) -> bool:
        """Whether its new value is all that this rank keeps of it; else it is gathered after the update."""
        return not weight.shared or self.exchanges.storage(weight).weights

    @staticmethod
    def _copied(to_host: bool, size: float) -> Iterator[Copy]:
        if size:
            yield Copy("weights", to_host, size)

    def _tied(self, own: Sequence[Weight], holders: Holders) -> Iterator[Communicate]:
        """Weights that several pipeline ranks use are summed over those that have them."""
        together: dict[frozenset[int], list[Weight]] = defaultdict(list)
        for weight in own:
            if weight.trainable:
                together[holders[weight.key]].append(weight)
        for ranks, shared in together.items():
            travels = travel(PARTIAL, REPLICATED, len(ranks))
            if travels is not None:
                payload = sum(self._tied_elements(weight) * weight.times for weight in shared) * self.bytes.wire
                count = sum(weight.times for weight in shared)
                name = shared[0].name if count == 1 else f"{count} weights"
                yield Communicate(travels.kind, (AxisName.PP,), len(ranks), payload, TrafficKind.WEIGHT_GRADIENTS, name)

    def _tied_elements(self, weight: Weight) -> int:
        """Gradients that lie in shares travel in shares; others whole (Megatron-LM sums the whole buffer)."""
        return self.exchanges.held(weight) if self.exchanges.storage(weight).gradients else weight.elements

    def _update(self, own: Sequence[Weight]) -> Iterator[Action]:
        trained = [weight for weight in own if weight.trainable]
        here = [weight for weight in trained if not (self.offload.weights and self._updated_at_rest(weight))]
        leaving = [weight for weight in trained if not self._leaves(weight)]
        updates = self._updates((weight, weight.times) for weight in trained)
        if self.offload.optimizer:
            yield from self.updated_on_host(updates, self._all_held(leaving), self._all_held(here))
            return
        if self.offload.weights and not self.bytes.master:  # the weights themselves are updated, on the device
            yield from self._copied(False, self._all_held(trained) * self.bytes.weight)
        yield from map(self._updated, updates)

    def updated_on_host(self, updates: Iterable[Updated], leaving: int, here: int) -> Iterator[Action]:
        """Gradients that are still here go to the host, and weights that are used from here come back."""
        yield from self._sent_out(leaving * self.bytes.wire)
        yield from map(self._updated, updates)
        yield from self._copied(False, here * self.bytes.weight)

    def _updated(self, one: Updated) -> Update:
        return one.action(self.bytes, self.offload.optimizer)

    def _updates(self, weights: Iterable[tuple[Weight, int]], evenly: bool = False) -> tuple[Updated, ...]:
        """Trained weights, each so many times, by the rule that updates them."""
        found, whole = list(weights), self.trainer.storage.whole_states and not evenly and not self.servers
        most = fullest_shares(found, self.exchanges) if whole else {}
        held = ((one, round(one.elements * most.get(one.shared, 0.0)) or self.held(one), times) for one, times in found)
        return by_rule(self.setting.job.optimizer, held, self.bytes, self.exchanges.cuts)

    # memory

    def resting(self, own: Sequence[Weight], versions: int, evenly: bool = False) -> PersistentBytes:
        """What lies there all the time, older versions too; `evenly`: of no whole stage, states as if all were cut."""
        weights = gradients = 0.0
        parameters, trained, by_units = 0, 0, self.trainer.storage.keeps_messages
        training: list[tuple[Weight, int]] = []
        trained_units = {weight.layer for weight in own if weight.trainable} if self.trainer.storage.flat else ()
        for weight, count in _counted(own):
            part, storage = self.exchanges.held(weight), self.exchanges.storage(weight)
            weights += count * self.bytes.resting(weight, part, storage, self.gathers_each, by_units)
            parameters += weight.elements * count
            if not weight.trainable:
                flat = (part if storage.name in self.each else weight.elements) * count * self.bytes.gradient
                gradients += flat if storage.weights and weight.layer in trained_units else 0.0
                continue
            trained += weight.elements * count
            training.append((weight, count))
            if not self._leaves(weight):
                shares = (storage.gradients and storage.name in self.each) or (
                    storage.states and self.trainer.storage.zero1_gradients
                )
                gradients += (part if shares else weight.elements) * count * self.bytes.gradient
        updates = self._updates(training, evenly)
        states = 0.0 if self.offload.optimizer else sum(one.kept(self.bytes) for one in updates)
        weights = 0.0 if self.offload.weights else weights
        return PersistentBytes(weights * versions, gradients, states, parameters, trained, updates)


def _counted(own: Sequence[Weight]) -> Iterator[tuple[Weight, int]]:
    """Weights that repetitions of a layer have alike, once, with how many there are."""
    count = Counter[tuple[int, int]]()
    for weight in own:
        count[weight.key[:2]] += weight.times
    alike = {weight.key[:2]: weight for weight in own}
    return ((alike[home], times) for home, times in count.items())
