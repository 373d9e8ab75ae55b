"""How gradients are summed and weights gathered, from how each weight is stored along each axis.

A weight's gradient is a summand along some axes. Along those where states lie in shares it becomes a
share, along the others everybody's sum; where the weights themselves lie in shares they are gathered
for each use, else after the update. Which collectives that makes is said by `transition.travel`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from foretell.plan.placement import DRIFTED, PARTIAL, REPLICATED, Placement, Served, Sharded
from foretell.plan.policies.compression import Compression
from foretell.plan.storage import STORAGES, Storage
from foretell.plan.strategy import MeshAxis
from foretell.program.action import Communicate, TrafficKind
from foretell.program.sharding.transition import travel
from foretell.program.stage_weights import UnitMessages
from foretell.program.weights import Weight
from foretell.units import product

SHARE = Sharded(0)

BUCKET = "bucket"
"""The path of sums that several layers share."""


@dataclass(frozen=True)
class Exchanges:
    """How one trainer under one plan brings gradients and weights together."""

    axes: dict[str, MeshAxis]
    weight_bytes: float
    gradient_bytes: float
    first_bucket: float
    bucket: float  # bytes; 0: everything in one
    compression: Compression
    layer_bytes: float  # of a gradient as it is summed along the axes of layers
    one_by_one: bool  # whether weights that a tensor axis has whole are summed along it each by itself
    whole: tuple[str, ...] = ()  # storages whose gradients everybody gets summed, in one message, for a share of them
    by_modules: bool = False  # whether what is in no layer is gathered module by module, and let go after each
    known: dict[Hashable, Any] = field(init=False, repr=False, compare=False, default_factory=dict[Hashable, Any])

    def ranks(self, names: tuple[str, ...]) -> int:
        if names not in self.known:
            self.known[names] = product(self.axes[name].ranks for name in names)
        return self.known[names]

    def storage(self, weight: Weight) -> Storage:
        """How a weight is stored along the axes that share it."""
        return self.stored(weight.shared)

    def stored(self, shared: tuple[str, ...]) -> Storage:
        return self.axes[shared[0]].storage if shared else STORAGES["replicated"]

    def held(self, weight: Weight) -> int:
        """Elements of it whose states this rank holds."""
        return weight.part(self.ranks(weight.shared)) if weight.shared else weight.elements

    def cuts(self, weight: Weight) -> bool:
        """Whether its gradient lies in shares, so that nobody has the whole of it."""
        return bool(weight.shared) and self.storage(weight).gradients

    def gather(self, weights: Sequence[Weight], path: str, sliced: bool = False) -> Iterator[Communicate]:
        """Bring weights that lie in shares together for use."""
        for shared, group in _by(weights, lambda weight: weight.shared).items():
            ranks = self.ranks(shared)
            payload = sum(weight.part(ranks) * weight.times * self._width(weight) for weight in group)
            slices = sum(weight.times for weight in group) if sliced else 0
            for message in self._moved(SHARE, REPLICATED, shared, payload, "weights", path):
                yield msgspec.structs.replace(message, slices=slices) if slices else message

    def gathered_bytes(self, weights: Sequence[Weight]) -> float:
        return sum(self._gathered(weight) * weight.times * self._width(weight) for weight in weights)

    def root_bytes(self, weights: Sequence[Weight]) -> float:
        """The same of what is in no layer: at once, or the largest module of it."""
        if not self.by_modules:
            return self.gathered_bytes(weights)
        modules = _by(weights, lambda weight: weight.name.partition(".")[0])
        return max((self.gathered_bytes(own) for own in modules.values()), default=0.0)

    def _gathered(self, weight: Weight) -> int:
        return weight.gathered(self.ranks(weight.shared)) if weight.shared else weight.elements

    def summed_bytes(self, weights: Sequence[Weight]) -> float:
        """Bytes read and written where the gradients of some weights go into the message that sums them."""
        return self.gathered_bytes([one for one in weights if one.trainable]) + self.message_bytes(weights)

    def messages(self, unit: Sequence[Weight], sums: bool) -> UnitMessages:
        """Bytes of what some weights are gathered into, and of what their gradients leave in, if they do each time."""
        return UnitMessages(self.gathered_bytes(unit), self.message_bytes(unit) if sums else 0.0)

    def message_bytes(self, weights: Sequence[Weight]) -> float:
        """Bytes of the message that sums the gradients of some weights, which has room for what is padded."""
        return sum(self._gathered(one) * one.times for one in weights if one.trainable) * self.gradient_bytes

    def _width(self, weight: Weight) -> float:
        """Bytes of its elements as they are gathered: in few bits where it lies so."""
        return weight.width or self.weight_bytes

    def reduce(self, weights: Sequence[Weight], path: str) -> Iterator[Communicate]:
        """Sum the gradients of some weights: into shares where states lie so, else for everybody."""
        trained = [weight for weight in weights if weight.trainable]
        for rest, group in _by(trained, lambda weight: self._sums(weight)[0]).items():
            for together in _each(group) if self.one_by_one else [group]:
                payload = sum(weight.elements * weight.times for weight in together) * self.layer_bytes
                yield from self._moved(PARTIAL, REPLICATED, rest, payload, TrafficKind.WEIGHT_GRADIENTS, path)
        for shared, group in _by(trained, lambda weight: weight.shared).items():
            ranks = self.ranks(shared)
            payload = sum(self._compressed(weight, weight.part(ranks) * ranks) * weight.times for weight in group)
            target = REPLICATED if self._whole(shared) else SHARE
            yield from self._moved(PARTIAL, target, shared, payload, TrafficKind.WEIGHT_GRADIENTS, path)
        for (shared, rest), group in _by(trained, lambda weight: (weight.shared, self._sums(weight)[1])).items():
            ranks = 1 if self._whole(shared) else self.ranks(shared)
            payload = sum(self._compressed(weight, weight.part(ranks)) * weight.times for weight in group)
            source = PARTIAL if self.compression.adds else SHARE  # of a list of everybody's summands
            yield from self._moved(source, REPLICATED, rest, payload, TrafficKind.WEIGHT_GRADIENTS, path)

    def _whole(self, shared: tuple[str, ...]) -> bool:
        """Whether gradients are summed for everybody, though each rank needs its share alone."""
        return bool(shared) and self.axes[shared[0]].storage.name in self.whole

    def in_buckets(self, weights: Sequence[Weight]) -> Iterator[Communicate]:
        """The same for all weights of a stage, in the order their gradients are made, bucket by bucket."""
        trained = [weight for weight in weights if weight.trainable]
        for group in _by(trained, self._together).values():
            alike: dict[tuple[int, ...], tuple[Communicate, ...]] = {}  # sums of equal buckets are found once
            for bucket in self._buckets(group):
                if bucket not in alike:
                    alike[bucket] = self._reduced([group[at] for at in bucket])
                yield from alike[bucket]

    def _together(self, weight: Weight) -> tuple[str, ...]:
        """Axes whose sums share buckets."""
        key = ("together", weight.summed, weight.shared)
        if key not in self.known:
            self.known[key] = weight.shared or self._sums(weight)[1]
        return self.known[key]

    def _reduced(self, bucket: list[Weight]) -> tuple[Communicate, ...]:
        """The sums of a bucket; other stages may have one like it."""
        key = tuple(
            (weight.rows, weight.columns, weight.summed, weight.shared, weight.dense, weight.together)
            for weight in bucket
        )
        if key not in self.known:
            self.known[key] = tuple(self.reduce([weight._replace(times=1) for weight in bucket], BUCKET))
        return self.known[key]

    def served(self, weights: Sequence[Weight]) -> tuple[list[Communicate], list[Communicate]]:
        """Gradients go to servers, the nearest first, and new weights come from them on the same way."""
        push, pull = list[Communicate](), list[Communicate]()
        trained = [weight for weight in weights if weight.trainable]
        for axis in reversed(self.axes.values()):
            target = axis.exchange.weights
            if isinstance(target, Served) and axis.ranks > 1:
                there = sum(self._compressed(weight, weight.elements) * weight.times for weight in trained)
                push += self._moved(PARTIAL, target, (axis.name,), there, TrafficKind.WEIGHT_GRADIENTS, "servers")
                back = sum(weight.elements * weight.times for weight in trained) * self.weight_bytes
                pull += self._moved(target, REPLICATED, (axis.name,), back, "weights", "servers")
        return push, pull[::-1]

    def averaged(self, weights: Sequence[Weight]) -> Iterator[Communicate]:
        """Versions of the weights that ranks updated on their own come together."""
        for axis in self.axes.values():
            if axis.exchange.own and axis.ranks > 1:
                whole = sum(weight.elements * weight.times for weight in weights if weight.trainable)
                payload = whole * self.weight_bytes
                found = self._moved(DRIFTED, axis.exchange.weights, (axis.name,), payload, "weights", "averaging")
                yield from (msgspec.structs.replace(message, every=axis.exchange.period) for message in found)

    def _sums(self, weight: Weight) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.sums(weight.summed, weight.shared)

    def sums(self, summed: tuple[str, ...], shared: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Axes that sum a gradient for everybody: those of layers first, those of samples at last.

        Among the latter are those that divide layers in a part and samples in the rest: weights of the part lie in
        shares, and it is those of the rest that are summed.
        """
        if summed == shared:
            return (), ()
        rest = [name for name in summed if name not in shared and not self._apart(self.axes[name])]
        layers = tuple(
            name for name in rest if self.axes[name].splitting.weighted and not self.axes[name].splitting.rest
        )
        return layers, tuple(name for name in rest if name not in layers)

    @staticmethod
    def _apart(axis: MeshAxis) -> bool:
        """Whether gradients are not summed along an axis: servers do it, or nobody."""
        return axis.exchange.own or isinstance(axis.exchange.weights, Served)

    def _compressed(self, weight: Weight, elements: int) -> float:
        return self.compression.payload(elements, weight.rows, self.gradient_bytes, weight.dense)

    def _buckets(self, weights: list[Weight]) -> Iterator[tuple[int, ...]]:
        """Places of weights that are put together until a bucket is full, from the last layer's last one on.

        The first bucket is smaller, so that it starts early.
        """
        order = _backwards(weights)
        sizes = [weight.elements * self.gradient_bytes for weight in weights]
        limit, held, first = (self.first_bucket or self.bucket) or float("inf"), 0.0, 0
        if weights and self._whole(weights[0].shared):
            limit = float("inf")
        for stop, at in enumerate(order, 1):
            held += sizes[at]
            if held >= limit:
                yield tuple(order[first:stop])
                limit, held, first = self.bucket, 0.0, stop
        if first < len(order):
            yield tuple(order[first:])

    def _moved(
        self, source: Placement, target: Placement, names: tuple[str, ...], payload: float, what: str, path: str
    ) -> Iterator[Communicate]:
        ranks = self.ranks(names)
        travels = travel(source, target, ranks)
        if travels is not None and payload:
            yield Communicate(travels.kind, names, ranks, payload, what, path, travels.messages)


def _each(weights: Sequence[Weight]) -> Iterator[list[Weight]]:
    """Every single one."""
    return ([weight._replace(times=1)] for weight in weights for _ in range(weight.times))


def _same_layer(one: Weight, other: Weight) -> bool:
    return (one.layer, one.times) == (other.layer, other.times) and (one.times == 1 or one.key[0] == other.key[0])


def _backwards(weights: Sequence[Weight]) -> list[int]:
    """Places of weights in the order their gradients are made: layer by layer where several have equal ones."""
    found: list[int] = []
    stop = len(weights)
    while stop:
        last = weights[stop - 1]
        start = stop - 1
        while start and _same_layer(weights[start - 1], last):
            start -= 1
        found += [*range(stop - 1, start - 1, -1)] * last.times
        stop = start
    return found


_Key = TypeVar("_Key", bound=Hashable)


def _by(weights: Sequence[Weight], key: Callable[[Weight], _Key]) -> dict[_Key, list[Weight]]:
    groups: dict[_Key, list[Weight]] = defaultdict(list)
    for weight in weights:
        groups[key(weight)].append(weight)
    return groups
