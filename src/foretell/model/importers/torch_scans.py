# pyright: basic
"""Scans of transformers' classes as the kernels that people train them with: one operator, not a loop over places.

Without mamba_ssm or flash-linear-attention transformers runs a loop in Python, whose thousands of steps take minutes
to trace and nobody trains with. While a class is traced, its scan is written down as the kernel: it reads what goes
in, writes what comes out, keeps what went in, and makes its states again on the way back. These are the operators of
the zoo, as many operations for as many numbers. A scan has its gate inside here, and keeps z and its output before it;
logarithms of decays are made before the rule, which keeps their sums alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor

from foretell.model.importers.torch_dims import Group, fresh, size_of, tie
from foretell.model.importers.torch_fused import FUNCTIONS, Fused, Given
from foretell.model.importers.torch_tape import Tape
from foretell.model.operators.delta_rule import DeltaRule
from foretell.model.operators.selective_scan import SelectiveScan

SCAN_ARGUMENTS: Final = ("x", "dt", "a", "b", "c", "d", "z", "bias")
RULE_ARGUMENTS: Final = ("v", "q", "k", "g", "e", "chunk")


class ScanShapes(torch.autograd.Function):
    """mamba_ssm's `selective_scan_fn`: shapes only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        return torch.empty_like(x)


class RuleShapes(torch.autograd.Function):
    """`chunk_gated_delta_rule` of flash-linear-attention: shapes only."""

    @staticmethod
    def forward(ctx: Any, v: torch.Tensor, *others: torch.Tensor | int) -> torch.Tensor:
        return torch.empty_like(v)


def _scanned(own: Callable[..., Any]) -> Callable[..., Any]:
    """transformers' `mamba_selective_scan`, where shapes are trained."""
    names = ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias")

    @functools.wraps(own)
    def scan(*args: Any, **said: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **said}
        if not isinstance(given["hidden_states"], FakeTensor) or given.get("return_last_state"):
            return own(*args, **said)
        return ScanShapes.apply(*(given.get(name) for name in names))

    return scan


def _ruled(own: Callable[..., Any]) -> Callable[..., Any]:
    """transformers' `torch_chunk_gated_delta_rule`, where shapes are trained."""

    @functools.wraps(own)
    def rule(query: Any, key: Any, value: Any, g: Any, beta: Any, chunk_size: int = 64, **more: Any) -> Any:
        stateful = more.get("initial_state") is not None or more.get("output_final_state")
        if (
            stateful
            or not more.get("use_qk_l2norm_in_kernel")
            or not isinstance(value, FakeTensor)
            or key.shape[2] != value.shape[2]
        ):
            return own(query, key, value, g, beta, chunk_size, **more)
        return RuleShapes.apply(value, query, key, g, beta, chunk_size), None

    return rule


INSTEAD: Final = {"mamba_selective_scan": _scanned, "torch_chunk_gated_delta_rule": _ruled}
"""Functions of transformers' files, and what stands for them."""


def replacements(home: ModuleType) -> list[tuple[ModuleType, str, Any]]:
    """(where, name, what instead) for a file of transformers."""
    return [(home, name, instead(getattr(home, name))) for name, instead in INSTEAD.items() if hasattr(home, name)]


SCAN_DIMS: Final = {
    **dict.fromkeys(("x", "dt", "z"), ("sample", "channel", "sequence")),
    **dict.fromkeys(("b", "c"), ("sample", "state", "sequence")),
}
"""Of tensors that mamba_ssm has in another order than the operator."""


def _write_scan(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    sample, channel, sequence = layout = tape.layout(given["x"])
    loops = {"sample": sample, "sequence": sequence, "channel": channel, "state": tape.layout(given["a"])[1]}
    operator = SelectiveScan()
    inputs = {name: given[name] for name in SCAN_ARGUMENTS if given.get(name) is not None}
    _tie(tape, loops, inputs, operator.spans | SCAN_DIMS)
    tape.add(operator, loops, inputs, [(outputs[0], layout)], by_rule=True)
    _note(tape, "selective scans are", "mamba_ssm")


def _write_rule(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    sample, sequence, head, value = layout = tape.layout(given["v"])
    loops = {"sample": sample, "sequence": sequence, "head": head, "key": tape.layout(given["k"])[3], "value": value}
    operator = DeltaRule(given["chunk"])
    inputs = {name: given[name] for name in ("q", "k", "v", "g", "e")}
    _tie(tape, loops, inputs, operator.spans)
    place = fresh(min(operator.chunk, size_of(sequence)), "place")
    tape.add(operator, loops | {"place": place}, inputs, [(outputs[0], layout)], by_rule=True)
    _note(tape, "gated delta rules are", "flash-linear-attention")


def _tie(
    tape: Tape, loops: dict[str, Group], inputs: dict[str, torch.Tensor], dims: Mapping[str, tuple[str, ...]]
) -> None:
    """Dims of tensors are those of the loops that walk over them."""
    for name, tensor in inputs.items():
        for own, loop in zip(tape.layout(tensor), dims[name], strict=True):
            tie(own, loops[loop])


def _note(tape: Tape, what: str, package: str) -> None:
    note = f"{what} kernels of {package}; where it is not installed, a loop in Python takes far longer"
    if note not in tape.notes:
        tape.notes.append(note)


FUNCTIONS |= {
    f"{__name__}.ScanShapes": Fused(SCAN_ARGUMENTS, _write_scan),
    f"{__name__}.RuleShapes": Fused(RULE_ARGUMENTS, _write_rule),
}
