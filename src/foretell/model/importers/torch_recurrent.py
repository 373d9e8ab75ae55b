# pyright: basic
"""Recurrent layers of a trace: one operator for each layer and direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from foretell.model.importers.torch_dims import Atom, Group, Layout, fresh, joined, tie
from foretell.model.importers.torch_tape import Tape
from foretell.model.operators.dropout import Dropout
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.layout import Concatenate
from foretell.model.operators.recurrent import GATES, Recurrent, RecurrentCall


def is_plain(given: dict[str, Any]) -> bool:
    """Whether all sequences have one length and states are not projected."""
    if not isinstance(given["biases"], bool):
        return False  # a packed sequence has its lengths where the weights would be
    directions = 2 if given["bidirectional"] else 1
    each = len(given["weights"]) // (given["layers"] * directions)
    return each == (4 if given["biases"] else 2)


def all_layers(cell: str) -> Callable[[Tape, dict[str, Any], list[torch.Tensor]], None]:
    """A writer for PyTorch's own call: all layers and directions; the states at the end are copies."""

    def write(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        directions = 2 if given["bidirectional"] else 1
        each = 4 if given["biases"] else 2
        weights = [given["weights"][at : at + each] for at in range(0, len(given["weights"]), each)]
        layers = [weights[at : at + directions] for at in range(0, len(weights), directions)]
        x, first = given["input"], bool(given.get("batch_first"))
        for at, layer in enumerate(layers):
            last = at == len(layers) - 1
            x = _both_directions(tape, x, layer, RecurrentCall(cell), first, outputs[0] if last else None)
            if not last and given["dropout"] and given["train"]:
                x = _dropped(tape, x)
        for state in outputs[1:]:
            layout = tuple(fresh(size) for size in state.shape)
            tape.add(Elementwise("copy"), {"item": joined(layout)}, {"x": outputs[0]}, [(state, layout)])

    return write


def one_layer(cell: str) -> Callable[[Tape, dict[str, Any], list[torch.Tensor]], None]:
    """A writer for a function of (x, w, u, b, c) that is one layer in one direction."""

    def write(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        weights = [given[name] for name in ("w", "u", "b", "c")]
        _layer(tape, given["input"], weights, Recurrent(cell), True, outputs[0])

    return write


def _both_directions(
    tape: Tape,
    x: torch.Tensor,
    directions: list[list[torch.Tensor]],
    operator: Recurrent,
    batch_first: bool,
    output: torch.Tensor | None,
) -> torch.Tensor:
    """One layer, in one direction or in two whose outputs are joined."""
    units = directions[0][1].shape[1]
    whole = output if output is not None else _made(tape, x, units * len(directions), directions)
    if len(directions) == 1:
        _layer(tape, x, directions[0], operator, batch_first, whole)
        return whole
    halves = [_made(tape, x, units, directions) for _ in directions]
    for weights, half in zip(directions, halves, strict=True):
        _layer(tape, x, weights, operator, batch_first, half)
    layout = (*tape.layout(halves[0])[:-1], fresh(whole.shape[-1], "hidden"))
    tape.add(Concatenate(), {"item": joined(layout)}, {"x": halves[0], "x1": halves[1]}, [(whole, layout)])
    return whole


def _made(tape: Tape, like: torch.Tensor, features: int, weights: list[list[torch.Tensor]]) -> torch.Tensor:
    """A tensor between two layers, which the fused call never shows."""
    needs = like.requires_grad or any(weight.requires_grad for some in weights for weight in some)
    with tape.pause():
        return like.new_empty((*like.shape[:-1], features)).requires_grad_(needs)


def _layer(
    tape: Tape,
    x: torch.Tensor,
    weights: list[torch.Tensor],
    operator: Recurrent,
    batch_first: bool,
    output: torch.Tensor,
) -> None:
    known = tape.layout(x)
    units = weights[1].shape[1]
    gates = GATES[operator.cell]
    out = fresh(units, "hidden")
    gate: Group = (Atom(gates, "gate", 3),) if gates > 1 else ()
    rows = (*gate, *out)
    tie(tape.layout(weights[0])[0], rows)
    tie(tape.layout(weights[0])[1], known[-1])
    tie(tape.layout(weights[1])[0], rows)
    for bias in weights[2:]:
        tie(tape.layout(bias)[0], rows)
    sample, sequence = _order(known, batch_first)
    loops = {
        "sample": sample,
        "sequence": sequence,
        "in": known[-1],
        "unit": tape.layout(weights[1])[1],
        "gate": gate,
        "out": out,
    }
    inputs = {"x": x} | dict(zip(("w", "u", "b", "c"), weights, strict=False))
    tape.add(operator, loops, inputs, [(output, (*known[:-1], out))], by_rule=True)


def _order(known: Layout, batch_first: bool) -> tuple[Group, Group]:
    if len(known) == 2:
        return (), known[0]
    return (known[0], known[1]) if batch_first else (known[1], known[0])


def _dropped(tape: Tape, x: torch.Tensor) -> torch.Tensor:
    output, layout = _made(tape, x, x.shape[-1], []), tape.layout(x)
    tape.add(Dropout(), {"item": joined(layout)}, {"x": x}, [(output, layout)], by_rule=True)
    return output
