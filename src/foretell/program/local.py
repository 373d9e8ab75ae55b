"""A local program: what one rank does with its share of one micro-batch, kind of layer by kind of layer.

It depends on the axes that divide layers, the size of a micro-batch and what is kept of it, not on how many stages
the pipeline has or how many ranks hold copies: so plans that differ only in these share it, with its prices.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foretell.model.layers import Run
from foretell.model.resize import skeleton
from foretell.program.action import Action, Actions, Allocate, Compute, Copy, Free
from foretell.program.body import Bodies, Made
from foretell.program.holding import PLAYED, Event, Events, Passes, Profile, Script, StageRuns, script
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

    def __init__(self, layout: Layout, again: str, waits_on_host: bool) -> None:
        self.layout, self.graph = layout, layout.graph
        self.bodies = Bodies(layout, again)
        self.plain = self.bodies if again == "nothing" else Bodies(layout)
        self.waits_on_host = waits_on_host  # activations, between the two passes
        messages = (one for found in layout.travels.values() for one in found)
        self.talks = tuple(sorted({name for one in messages for name in one.axes}))  # axes that layers talk along
        self.priced: dict[Any, Any] = {}
        self.actions = functools.cache(self._actions)
        self.weights = functools.cache(self._weights)
        self.bytes = functools.cache(self._bytes)
        self._profiles: dict[Any, Profile | None] = {}
        self._holds: dict[tuple[Kind, bool], _Held] = {}

    def _actions(self, kind: Kind) -> tuple[Actions, Actions]:
        """The forward and the backward pass of a kind of layer."""
        forward = self.bodies.forward(*kind, "").actions
        backward = self.bodies.backward(*kind, "").actions
        if not self.waits_on_host:
            return forward, backward
        begun = {a.name: a.bytes for a in forward if isinstance(a, Allocate) and a.kind == "activation"}
        ended = {a.name for a in forward if isinstance(a, Free) and a.when == "every"}
        kept = sum(size for name, size in begun.items() if name not in ended)
        return (*forward, Copy("activations", True, kept)), (Copy("activations", False, kept), *backward)

    def _weights(self, kind: Kind) -> tuple[Weight, ...]:
        """The weights that a kind of layer uses, as the first of its repetitions has them."""
        return used(self.layout, *kind)

    def runs_back(self, kind: Kind) -> bool:
        """Whether a kind of layer has a backward pass; frozen ones may have none."""
        return any(node.gradients for node in self.graph.blocks[kind.block].nodes[kind.start : kind.stop])

    @functools.cached_property
    def sampled(self) -> frozenset[tuple[int, int]]:
        """Parameters whose gradient is a sum over samples."""
        return sampled(skeleton(self.graph))

    def _bytes(self, tensor: tuple[int, int]) -> Quantity:
        """Of a tensor, as a block calls it."""
        return self.layout.bytes(*tensor)

    # memory

    def passes(
        self,
        own: StageRuns,
        gathered: tuple[float, ...],
        reshards: bool,
        plain: bool,
        pipelined: bool,
        gradient: float = 0.0,
    ) -> Passes:
        """What a micro-batch holds on a stage of these layers.

        `gathered` are bytes of weights that are brought together for each run, and let go between the passes if it
        `reshards`; `plain` is as if nothing ran again. `gradient` is bytes of the gradient of each parameter.
        """
        if not own.runs:
            return Passes(0.0, 0.0, 0.0, 0.0)
        how = (gathered, reshards, plain, pipelined, gradient)
        if own.times > PLAYED:
            key = (own.alike, how)
            if key not in self._profiles:
                self._profiles[key] = self._profile(own.runs, *how, long=True)
            found = self._profiles[key]
            if found is not None:
                return found.passes(own.times)
        key = (own.alike, own.times, how)
        if key not in self._profiles:
            self._profiles[key] = self._profile(own.runs, *how, long=False)
        found = self._profiles[key]
        assert found is not None  # only a long run can be uneven
        return found.passes(PLAYED)

    def _profile(
        self,
        own: tuple[Run, ...],
        gathered: tuple[float, ...],
        reshards: bool,
        plain: bool,
        pipelined: bool,
        gradient: float,
        long: bool,
    ) -> Profile | None:
        stage: list[Events] = []
        sizes: list[Quantity] = []
        made: list[Quantity] = []
        for at, (run, size) in enumerate(zip(own, gathered or (0.0,) * len(own), strict=True)):
            held = self._held(kind_of(run), plain)
            if size:
                held = held.gathering(f"run{at} weights", size, reshards)
            stage.append(Events(run, held.forward, held.backward))
            sizes += [0.0 if new else size for size, new in zip(held.sizes, held.new, strict=True)]
            made += [size * gradient if new else size for size, new in zip(held.sizes, held.new, strict=True)]
        key = (skeleton(self.graph), tuple(stage), long, pipelined)
        if key not in _SCRIPTS:
            if len(_SCRIPTS) >= MOST_SCRIPTS:
                _SCRIPTS.clear()
            _SCRIPTS[key] = script(key[0], stage, long, pipelined)
        return _SCRIPTS[key].profile(sizes, made)

    def inputs(self, own: StageRuns) -> Quantity:
        """Bytes of the samples that a stage is given: tensors of the first block, which none of its layers makes."""
        read: set[tuple[int, int]] = set()
        for run in own.runs:
            for node in self.graph.blocks[run.block].nodes[run.start : run.stop]:
                homes = (self.graph.home(run.block, operand.tensor)[:2] for operand in node.inputs)
                read.update(home for home in homes if self.graph.blocks[home[0]].tensors[home[1]].role == "input")
        return sum(self.layout.held_bytes(*home) for home in read)

    def _held(self, kind: Kind, plain: bool) -> _Held:
        if (kind, plain) not in self._holds:
            bodies = self.plain if plain else self.bodies
            self._holds[kind, plain] = _Held.of(bodies.forward(*kind, "").actions, bodies.making(*kind))
        return self._holds[kind, plain]


MOST_SCRIPTS = 4096
_SCRIPTS: dict[Any, Script] = {}


class _Held(NamedTuple):
    """The events of memory of a kind of layer, and their sizes: bytes, of new gradients of weights their elements."""

    forward: tuple[Event, ...]
    backward: tuple[Event, ...]
    sizes: tuple[Quantity, ...]
    new: tuple[bool, ...]
    runs_back: bool

    @classmethod
    def of(cls, forward: Iterable[Action | Made], backward: Sequence[Action | Made]) -> _Held:
        ahead, back = _events(forward), _events(backward)
        sizes = tuple(one.elements if isinstance(one, Made) else one.bytes for one in (*ahead, *back))
        new = tuple(isinstance(one, Made) for one in (*ahead, *back))
        return cls(_named(ahead), _named(back), sizes, new, any(isinstance(one, Compute) for one in backward))

    def gathering(self, name: str, size: float, reshards: bool) -> _Held:
        """The same with weights that are gathered before each use."""
        begin, end = Event(True, name, "every"), Event(False, name, "every")
        ahead, split = self.forward, len(self.forward)
        forward = (begin, *ahead, *((end,) if reshards else ()))
        first = (size, *self.sizes[:split], *((size,) if reshards else ()))
        old = (False,) * len(first)
        if reshards and not self.runs_back:  # frozen, and so is all before it
            return self._replace(forward=forward, sizes=(*first, *self.sizes[split:]), new=(*old, *self.new[split:]))
        backward = (*((begin,) if reshards else ()), *self.backward, end)
        second = (*((size,) if reshards else ()), *self.sizes[split:], size)
        new = (*old, *((False,) if reshards else ()), *self.new[split:], False)
        return _Held(forward, backward, (*first, *second), new, self.runs_back)


def _events(actions: Iterable[Action | Made]) -> list[Allocate | Free | Made]:
    return [action for action in actions if isinstance(action, Allocate | Free | Made)]


def _named(actions: list[Allocate | Free | Made]) -> tuple[Event, ...]:
    return tuple(
        Event(False, action.name, action.when) if isinstance(action, Free) else Event(True, action.name, "every")
        for action in actions
    )
