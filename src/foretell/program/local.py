"""A local program: what one rank does with its share of one micro-batch, kind of layer by kind of layer.

It depends on the axes that divide layers, the size of a micro-batch and what is kept of it, not on how many stages
the pipeline has or how many ranks hold copies: so plans that differ only in these share it, with its prices.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from foretell.model.layers import Run, pieces, runs
from foretell.model.resize import skeleton
from foretell.program.action import Actions, Allocate, Copy, Free
from foretell.program.body import Bodies, Body
from foretell.program.layout import Layout
from foretell.program.replay import PLAYED, Passes, Profile, Turn, longest, profile, replay
from foretell.program.weights import Weight, sampled, used


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
        self._passes: dict[Any, Passes] = {}

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

    @functools.cached_property
    def weights_key(self) -> Any:
        """All that is known of the weights, of whatever layer."""
        kinds = {kind_of(run) for run in runs(pieces(skeleton(self.graph)))}
        return tuple(self.weights(kind) for kind in sorted(kinds))

    def _bytes(self, tensor: tuple[int, int]) -> int:
        """Of a tensor, as a block calls it."""
        return self.layout.bytes(*tensor)

    # memory

    def passes(
        self, own: tuple[Run, ...], gathered: tuple[float, ...], reshards: bool, plain: bool, pipelined: bool
    ) -> Passes:
        """What a micro-batch holds on a stage of these layers.

        `gathered` are bytes of weights that are brought together for each run, and let go between the passes if it
        `reshards`; `plain` is as if nothing ran again.
        """
        if not own:
            return Passes(0.0, 0.0, 0.0)
        long = longest(own)
        times = own[long].times
        key = (*(self._alike(run, at == long) for at, run in enumerate(own)), gathered, reshards, plain, pipelined)
        if times <= PLAYED or self._profiles.get(key, "") is None:
            key = (*key, times)
            if key not in self._passes:
                played = replay(self.graph, self._turns(own, gathered, reshards, plain), pipelined=pipelined)
                self._passes[key] = Passes(played.kept, played.forward_peak, played.backward_peak)
            return self._passes[key]
        if key not in self._profiles:
            turns = self._turns(own, gathered, reshards, plain)
            self._profiles[key] = profile(self.graph, turns, pipelined=pipelined)
            return self.passes(own, gathered, reshards, plain, pipelined)
        found = self._profiles[key]
        assert found is not None
        return found.passes(times)

    def _alike(self, run: Run, long: bool) -> tuple[Kind, int, bool, bool]:
        """Runs that hold the same; the longest is told apart by what it holds at least."""
        last = run.first + run.times == self.graph.blocks[run.block].times
        return kind_of(run), min(run.times, PLAYED + 1) if long else run.times, run.first == 0, last

    def _turns(self, own: tuple[Run, ...], gathered: tuple[float, ...], reshards: bool, plain: bool) -> list[Turn]:
        bodies = self.plain if plain else self.bodies
        sizes = gathered or (0.0,) * len(own)
        found: list[Turn] = []
        for at, (run, size) in enumerate(zip(own, sizes, strict=True)):
            forward, backward = bodies.forward(*kind_of(run), ""), bodies.backward(*kind_of(run), "")
            if size:
                begin, end = Allocate(f"run{at} weights", size, "gathered"), Free(f"run{at} weights", size)
                ahead = (begin, *forward.actions, *((end,) if reshards else ()))
                back = (*((begin,) if reshards else ()), *backward.actions, end)
                if reshards and not any(backward.computations()):  # frozen, and so is all before it
                    back = backward.actions
                forward, backward = Body("", "forward", ahead), Body("", "backward", back)
            found.append(Turn(run, forward, backward))
        return found
