"""A local program: what one rank does with its share of one micro-batch, kind of layer by kind of layer.

It depends on the axes that divide layers, the size of a micro-batch and what is kept of it, not on how many stages
the pipeline has or how many ranks hold copies: so plans that differ only in these share it, with its prices.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from foretell.model.layers import Run
from foretell.model.resize import skeleton
from foretell.program.action import Action, Actions, Allocate, Compute, Copy, Free
from foretell.program.body import Bodies, Made
from foretell.program.holding import (
    PLAYED,
    Event,
    Events,
    Passes,
    Profile,
    Script,
    SizeTable,
    StackedRuns,
    StageRuns,
    Uneven,
    joined_tables,
    script,
    size_table,
)
from foretell.program.layout import Layout
from foretell.program.weights import Weight, sampled, used
from foretell.units import Quantity


class Kind(NamedTuple):
    """Operators of a block; equal layers, wherever they are, are of one kind."""

    block: int
    start: int
    stop: int


def kind_of(run: Run) -> Kind:
    return Kind(run.block, run.start, run.stop)


class Local:
    """The bodies of every kind of layer, found when they are asked for; `priced` is for whoever prices them."""

    def __init__(self, layout: Layout, again: str, plain: Local | None = None) -> None:
        self.layout, self.graph = layout, layout.graph
        self.bodies = Bodies(layout, again)
        self.plain = plain or self  # the same, where nothing runs again
        self.resident = self  # the same, whose activations stay on the device between the passes
        messages = (one for found in layout.travels.values() for one in found)
        self.talks = tuple(sorted({name for one in messages for name in one.axes}))  # axes that layers talk along
        self.priced: dict[Any, Any] = {}
        self.actions = functools.cache(self._actions)
        self.weights = functools.cache(self._weights)
        self.runs_back = functools.cache(self._runs_back)
        self.bytes = functools.cache(self._bytes)
        self._profiles: dict[Any, Profile | None] = {}
        self._holds: dict[Kind, _Held] = {}

    def waiting_on_host(self) -> Local:
        """The same, whose activations are on the host between the passes: all that is known of this one is."""
        found = copy.copy(self)
        found.priced = {}
        found.actions = functools.cache(found._actions)
        return found

    def _actions(self, kind: Kind) -> tuple[Actions, Actions]:
        """The forward and the backward pass of a kind of layer."""
        forward = self.bodies.forward(*kind, "").actions
        backward = self.bodies.backward(*kind, "").actions
        if self is self.resident:
            return forward, backward
        kept = self.copied(kind)
        return (*forward, Copy("activations", True, kept)), (Copy("activations", False, kept), *backward)

    def copied(self, kind: Kind) -> Quantity:
        """Bytes of activations that go to the host in a forward pass, and come back in the backward pass."""
        if self is self.resident:
            return 0
        forward = self.bodies.forward(*kind, "").actions
        begun = {a.name: a.bytes for a in forward if isinstance(a, Allocate) and a.kind == "activation"}
        ended = {a.name for a in forward if isinstance(a, Free) and a.when == "every"}
        return sum(size for name, size in begun.items() if name not in ended)

    def _weights(self, kind: Kind) -> tuple[Weight, ...]:
        """The weights that a kind of layer uses, as the first of its repetitions has them."""
        return used(self.layout, *kind)

    def _runs_back(self, kind: Kind) -> bool:
        """Whether a kind of layer has a backward pass; frozen ones may have none."""
        return any(node.gradients for node in self.graph.blocks[kind.block].nodes[kind.start : kind.stop])

    @functools.cached_property
    def sampled(self) -> frozenset[tuple[int, int]]:
        """Parameters whose gradient is a sum over samples."""
        return sampled(skeleton(self.graph))

    def _bytes(self, tensor: tuple[int, int]) -> Quantity:
        """Of a tensor that travels, as a block calls it."""
        return self.layout.wire_bytes(*tensor)

    # memory

    def passes(
        self,
        own: StageRuns | StackedRuns,
        gathered: tuple[float, ...],
        reshards: bool,
        pipelined: bool,
        gradient: float = 0.0,
    ) -> Passes:
        """What a micro-batch holds on a stage of these layers.

        `gathered` are bytes of weights that are brought together for each run, and let go between the passes if it
        `reshards`. `gradient` is bytes of the gradient of each parameter.
        """
        if not own.runs:
            return Passes(0.0, 0.0, 0.0, 0.0)
        care = (gathered, reshards, gradient)
        if isinstance(own, StackedRuns) or own.times > PLAYED:
            key = (own.alike, pipelined)
            if key not in self._profiles:
                self._profiles[key] = self._profile(own.runs, pipelined, long=True)
            found = self._profiles[key]
            if found is not None:
                return found.passes(own.times, *care)
        if isinstance(own, StackedRuns):
            raise Uneven
        key = (own.alike, own.times, pipelined)
        if key not in self._profiles:
            self._profiles[key] = self._profile(own.runs, pipelined, long=False)
        found = self._profiles[key]
        assert found is not None  # only a long run can be uneven
        return found.passes(PLAYED, *care)

    def _profile(self, own: tuple[Run, ...], pipelined: bool, long: bool) -> Profile | None:
        stage = [self._held(kind_of(run)) for run in own]
        key = (skeleton(self.graph), own, tuple(held.events for held in stage), long, pipelined)
        if key not in _SCRIPTS:
            if len(_SCRIPTS) >= MOST_SCRIPTS:
                _SCRIPTS.clear()
            events = [Events(run, held.forward, held.backward) for run, held in zip(own, stage, strict=True)]
            _SCRIPTS[key] = script(key[0], events, long, pipelined)
        sizes = joined_tables([held.sizes for held in stage])
        made = [elements for held in stage for elements in held.made]
        return _SCRIPTS[key].profile(sizes, made, [held.runs_back for held in stage])

    def _held(self, kind: Kind) -> _Held:
        if kind not in self._holds:
            passes = self.bodies.forward(*kind, "").actions, self.bodies.making(*kind)
            self._holds[kind] = _Held.of(*passes, self.layout.samples)
        return self._holds[kind]


MOST_SCRIPTS = 4096
_SCRIPTS: dict[Any, Script] = {}


_EVENTS: dict[Hashable, int] = {}
"""A number for the events of each kind of layer there was."""


class _Held(NamedTuple):
    """The events of memory of a kind of layer, and their sizes."""

    events: int  # the same where they are, whatever their sizes
    forward: tuple[Event, ...]
    backward: tuple[Event, ...]
    sizes: SizeTable
    made: tuple[float, ...]  # elements of new gradients of weights, which have no bytes among the sizes
    runs_back: bool

    @classmethod
    def of(cls, forward: Iterable[Action | Made], backward: Sequence[Action | Made], samples: Quantity) -> _Held:
        ahead, back = _events(forward), _events(backward)
        both = _named(ahead), _named(back)
        found = (*ahead, *back)
        sizes = size_table([0.0 if isinstance(one, Made) else one.bytes for one in found], samples)
        made = tuple(one.elements if isinstance(one, Made) else 0.0 for one in found)
        runs_back = any(isinstance(one, Compute) for one in backward)
        return cls(_EVENTS.setdefault(both, len(_EVENTS)), *both, sizes, made, runs_back)


def _events(actions: Iterable[Action | Made]) -> list[Allocate | Free | Made]:
    return [action for action in actions if isinstance(action, Allocate | Free | Made)]


def _named(actions: list[Allocate | Free | Made]) -> tuple[Event, ...]:
    return tuple(
        Event(False, action.name, action.when)
        if isinstance(action, Free)
        else Event(True, action.name, "every", isinstance(action, Made))
        for action in actions
    )
