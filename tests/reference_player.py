"""A second, small player of allocations and frees, so that the allocation trace has something to be held against.

It plays every layer of a program one after the other with a dictionary of what is alive, and shares no code with
`foretell.program.allocation_trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers
from foretell.program.action import Allocate, Free
from foretell.program.body import NewGradient
from foretell.program.expanded import Stage

Name: TypeAlias = tuple[int, int, int, str]
Alive: TypeAlias = dict[Name, float]


class Layer(NamedTuple):
    """What the layers of a run do in each pass."""

    run: EqualLayers
    forward: Iterable[Any]
    backward: Iterable[Any]


class Played(NamedTuple):
    """One micro-batch forward and back: what is alive when each pass is fullest, and between them."""

    forward: Alive
    kept: Alive
    backward: Alive
    missing: Alive
    left: Alive
    twice: Alive


class Player:
    def __init__(self, graph: Graph, gradient: float = 0.0) -> None:
        self.graph, self.gradient = graph, gradient
        self.alive: Alive = {}
        self.fullest: Alive = {}
        self.missing: Alive = {}
        self.twice: Alive = {}

    def play(self, run: EqualLayers, repetition: int, actions: Iterable[Any]) -> None:
        for action in actions:
            if isinstance(action, NewGradient):
                self.allocate(self.named(run.block, repetition, action.name), action.elements * self.gradient)
            elif isinstance(action, Allocate):
                self.allocate(self.named(run.block, repetition, action.name), action.bytes)
            elif isinstance(action, Free):
                last = self.graph.blocks[run.block].times - 1
                frees = {"every": True, "first": repetition == 0, "last": repetition == last, "rest": repetition != 0}
                if frees[action.when]:
                    self.free(self.named(run.block, repetition, action.name), action.bytes)

    def allocate(self, name: Name, size: float) -> None:
        if name in self.alive:
            self.twice[name] = size
            return
        self.alive[name] = size
        if sum(self.alive.values()) > sum(self.fullest.values()):
            self.fullest = dict(self.alive)

    def free(self, name: Name, size: float) -> None:
        if name in self.alive:
            del self.alive[name]
        else:
            self.missing[name] = size

    def named(self, at: int, repetition: int, name: str) -> Name:
        """`3.17 gradient`: tensor 17 of block 3, or what that is a view of; `3.import0`: its first import."""
        place, *words = name.split()
        block, _, number = place.partition(".")
        if not block.isdigit():
            return at, -1, repetition, name
        own = len(self.graph.blocks[at].tensors)
        tensor = own + int(number[6:]) if number.startswith("import") else int(number)
        what = words[-1] if words and words[-1] in ("gradient", "gathered", "cast", "made", "blocks") else ""
        if what == "gradient":
            return at, tensor, repetition, what
        return (*self.graph.home(at, tensor, repetition), what)


def played(graph: Graph, layers: Iterable[Layer], *, pipelined: bool, gradient: float = 0.0) -> Played:
    """Play a stage. In a pipeline it is played again: what was missing the first time comes, what was left goes."""
    layers = list(layers)
    alone = _once(graph, layers, {}, {}, gradient)
    if not pipelined:
        return alone
    left = {**alone.left, **alone.twice}
    return _once(graph, layers, alone.missing, left, gradient)._replace(missing=alone.missing, left=left)


def stage_layers(stage: Stage) -> list[Layer]:
    return [Layer(layer.run, layer.forward.actions, layer.backward.actions) for layer in stage.layers]


def _once(
    graph: Graph, layers: list[Layer], come: Mapping[Name, float], go: Mapping[Name, float], gradient: float
) -> Played:
    player = Player(graph, gradient)
    for name in (name for name in come if name[3] != "gradient"):
        player.allocate(name, come[name])
    for layer in layers:
        for repetition in range(layer.run.first, layer.run.first + layer.run.times):
            player.play(layer.run, repetition, layer.forward)
    forward = player.fullest
    for name in (name for name in go if name[3] != "gradient" and name in player.alive):
        player.free(name, 0.0)
    kept = player.fullest = dict(player.alive)
    for name in (name for name in come if name[3] == "gradient"):
        player.allocate(name, come[name])
    for layer in reversed(layers):
        for repetition in reversed(range(layer.run.first, layer.run.first + layer.run.times)):
            player.play(layer.run, repetition, layer.backward)
    return Played(forward, kept, player.fullest, player.missing, dict(player.alive), player.twice)
