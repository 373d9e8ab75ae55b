# pyright: basic
"""Which module an operator belongs to.

An operator has the path of the module whose forward ran it. What a loop over layers does itself
between them (`x = x + layer(x)`) would have the path of the model; it is given to the layers, so
that equal layers are seen to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from foretell.model.importers.torch_dims import leaves
from foretell.model.importers.torch_tape import ModuleCall, Recorded, Tape


class Paths:
    """Keeps the tape's path at the qualified name of the module that is running."""

    def __init__(self, module: torch.nn.Module, tape: Tape) -> None:
        self._names = {id(part): name for name, part in module.named_modules()}
        self._tape = tape
        self._stack: list[tuple[str, int]] = []
        self._frames = 0

    def enter(self, module: torch.nn.Module, _: Any) -> None:
        tape = self._tape
        name = self._names.get(id(module))
        if name is None:  # made while running: called by its class
            name = f"{tape.path}.{type(module).__name__}".lstrip(".")
        self._stack.append((tape.path, tape.frame))
        tape.calls.append(ModuleCall(tape.frame, len(tape.nodes), name))
        self._frames += 1
        tape.path, tape.frame = name, self._frames

    def leave(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if self._stack:
            self._tape.path, self._tape.frame = self._stack.pop()


def belong_to_layers(tape: Tape) -> None:
    """Give what a loop over layers does between two of them to a layer, where it is always the same."""
    calls: dict[int, list[ModuleCall]] = {}
    for call in tape.calls:
        calls.setdefault(call.caller, []).append(call)
    nodes: dict[int, list[tuple[int, Recorded]]] = {}
    for at, node in enumerate(tape.nodes):
        nodes.setdefault(node.frame, []).append((at, node))
    for frame, made in calls.items():
        if frame in nodes and sum(_is_layer(call) for call in made) > 1:
            _share_out(made, nodes[frame])


def _is_layer(call: ModuleCall) -> bool:
    return call.path.rpartition(".")[2].isdigit()


def _share_out(calls: list[ModuleCall], own: list[tuple[int, Recorded]]) -> None:
    gaps: list[list[Recorded]] = [[] for _ in range(len(calls) + 1)]  # before the first call, then after each
    place = 0
    for at, node in own:
        while place < len(calls) and calls[place].at <= at:
            place += 1
        gaps[place].append(node)
    after: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        if _is_layer(call):
            after.setdefault(call.path.rpartition(".")[0], []).append(at)
    for places in after.values():
        _to_layers([calls[at] for at in places], [gaps[at + 1] for at in places], gaps[places[0]])


def _to_layers(layers: list[ModuleCall], after: list[list[Recorded]], before: list[Recorded]) -> None:
    """`after` holds what follows each of these layers, `before` what precedes the first."""
    usual = _signature(after[0])
    if len(layers) < 2 or not usual or any(_signature(gap) != usual for gap in after[:-1]):
        return
    count = len(usual)
    if _signature(after[-1][:count]) == usual:
        for layer, gap in zip(layers, after, strict=True):
            for node in gap[:count]:
                node.path = layer.path
        return
    ahead = _signature(before[-count:]) == usual
    for at, gap in enumerate([before[-count:] if ahead else [], *after[:-1]]):
        for node in gap:
            node.path = layers[at].path


def _signature(nodes: Sequence[Recorded]) -> list[object]:
    return [
        (node.operator, [(name, [atom.size for atom in leaves(group)]) for name, group in node.loops.items()])
        for node in nodes
    ]
