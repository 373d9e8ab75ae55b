"""What every optimizer says about itself: what it keeps, computes and moves for a weight, and how torch runs it.

Most optimizers treat every element alike, so a rule has figures for each element. Some treat hidden matrices (those of
a model's layers, as a module stores them) otherwise than tables of words, last layers and vectors: these have a second
rule, which may also say what a whole matrix costs and keeps by its rows and columns (Newton-Schulz iterations,
preconditioners, factored moments). Where a rank holds a share of the weights, it has that share of a matrix's work: as
if ranks had whole matrices each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from foretell.model.operator import OperatorPart, Widths
from foretell.registry import OpenSet
from foretell.units import Quantity

OPTIMIZERS = OpenSet("foretell.model.optimizers", "optimizer")

MATRICES: Final = ":matrices"
"""After an optimizer's name: its rule for hidden matrices."""

Step: TypeAlias = Callable[[Any, Any, dict[str, Any], dict[str, Any]], None]
"""One step on one torch tensor, in place: the weight, its gradient, its states (empty at first), the arguments."""


class OptimizerState(msgspec.Struct, frozen=True):
    """Values that are kept from step to step."""

    name: str
    width: float = 0.0  # bytes of a value; 0: as wide as the trainer or the precision keeps states
    of_matrix: Callable[[int, int], int] | None = None  # values, by rows and columns; None: one for each element


class UpdateRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one weight is updated: w = w - step(g, states)."""

    flops: int  # for each element
    states: tuple[OptimizerState, ...] = ()
    kernels: int  # that go through a list of weights, one for each line of the formula
    passes: int = 0  # values that these read and write for each element; 0: not counted, priced as one fused kernel
    norm_passes: int = 0  # over weight and gradient, for norms of the whole weight
    makes_lists: bool = False  # whether an update by lists of tensors (`foreach`) makes a list of its own
    of_matrix: Callable[[int, int], OperatorPart] | None = (
        None  # what a whole matrix costs besides, by rows and columns
    )
    precision: str = ""  # in which matrices are multiplied; empty: the plan's
    step: Step | None = None  # where torch has no optimizer for it

    def cost(self, elements: Quantity, width: Widths) -> OperatorPart:
        """Weight `w`, gradient `g` and states `s` are read, weight and states written, by one fused kernel."""
        state = sum(one.width or width["s"] for one in self.states if one.of_matrix is None)
        norms = self.norm_passes * (width["w"] + width["g"])
        read = elements * (width["w"] + width["g"] + state + norms)
        written = elements * (width["w"] + state)
        return OperatorPart(0, self.flops * elements, read, written, self.kernels, 1, self.flops * elements, self.flops)

    def state_bytes(self, width: float) -> float:
        """Bytes of states for each element, where one value takes so many."""
        return sum(one.width or width for one in self.states if one.of_matrix is None)

    def matrix_state_bytes(self, rows: int, columns: int, width: float) -> float:
        """Bytes of states that a whole matrix has besides."""
        sizes = ((one.of_matrix(rows, columns), one.width or width) for one in self.states if one.of_matrix)
        return sum(values * size for values, size in sizes)


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """An optimizer. The name of its file is its name."""

    summary: str
    references: tuple[str, ...]
    rule: UpdateRule
    matrix_rule: UpdateRule | None = None  # of hidden matrices; None: the same
    tables: bool = False  # whether tables of words and last layers are updated as hidden matrices are
    torch: str = ""  # the class of torch.optim; empty: the steps of its rules
    arguments: dict[str, Any]  # of the class or of the steps, `lr` among them: the usual rate
    words: dict[str, str] = {}  # what trainers' configurations call it, by dialect

    @property
    def needs_matrices(self) -> bool:
        """Whether it has to know a matrix when it sees one: a share of one is none."""
        return self.matrix_rule is not None

    @property
    def needs_whole(self) -> bool:
        """Whether ranks with shares of a weight cannot update it each for itself."""
        return self.needs_matrices or self.rule.norm_passes > 0


@functools.cache
def optimizer(name: str) -> Optimizer:
    """The optimizer of this name."""
    return OPTIMIZERS[name].OPTIMIZER


@functools.cache
def update_rule(name: str) -> UpdateRule:
    """The rule that a program names: that of an optimizer, or its own for matrices."""
    found = optimizer(name.removesuffix(MATRICES))
    return (found.matrix_rule or found.rule) if name.endswith(MATRICES) else found.rule
