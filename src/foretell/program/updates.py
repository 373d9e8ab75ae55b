"""The optimizer's step on a rank: which weights each of its rules updates, what that costs, and what is kept for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from foretell.model.operator import NOTHING, OperatorPart
from foretell.model.optimizer import MATRICES, optimizer, update_rule
from foretell.plan.policies.precision import Format
from foretell.plan.storage import Storage
from foretell.plan.trainer import Trainer
from foretell.program.action import Update
from foretell.program.weights import Weight


@dataclass(frozen=True)
class Bytes:
    """Bytes of one weight in each of its forms."""

    weight: float  # at rest
    gathered: float  # in use, where it was gathered
    wire: float  # its gradient as it travels
    gradient: float  # its gradient at rest
    master: float  # the copy that the optimizer updates; 0: the weight itself
    state: float  # a value of the optimizer's states, where these do not say their own width

    @classmethod
    def of(cls, form: Format, trainer: Trainer, trains: bool = True) -> Bytes:
        """A trainer has its own figures for mixed 16-bit training; else the precision says.

        Where nothing is trained, weights lie as layers read them: what rests in fp32 to be updated has no use.
        """
        if not trains:
            return cls(form.weight, form.weight, 0, 0, 0, 0)
        if form.activation in ("bf16", "fp16") and form.master:
            s = trainer.storage
            return cls(s.weight, s.gathered, trainer.gradients.wire, s.gradient, s.master, s.state)
        return cls(form.weight, form.weight, form.gradient, form.accumulation, form.master, form.state)

    def resting(self, weight: Weight, part: int, storage: Storage, gathered_each: bool, by_units: bool) -> float:
        """Of a weight while micro-batches run, of whose elements this rank has a part: whole weights that were gathered
        once a step have it beside them. FSDP2 gathers them by units in zero2 too."""
        width = weight.width or self.weight
        gathered = not gathered_each if storage.weights else storage.gradients and by_units
        if gathered:
            return weight.elements * (weight.width or self.gathered) + part * width
        return (part if storage.weights else weight.elements) * width


@dataclass(frozen=True)
class Updated:
    """Weights that one rule of the optimizer updates on a rank."""

    rule: str
    elements: int = 0
    tensors: int = 0  # each a weight of its own
    matrices: OperatorPart = NOTHING  # what whole matrices cost besides
    matrix_states: float = 0  # bytes that these keep besides

    def action(self, size: Bytes, on_host: bool) -> Update:
        """The step on these weights."""
        widths = {"w": size.master or size.weight, "g": size.gradient, "s": size.state}
        cost = update_rule(self.rule).cost(self.elements, widths)
        if not self.matrices.nothing:
            cost = cost + self.matrices
        if size.master:
            cost = cost + OperatorPart(written=self.elements * size.weight)  # the copy that layers read
        return Update(self.rule, self.elements, cost, on_host, self.tensors)

    def kept(self, size: Bytes) -> float:
        """Bytes of master copies and states."""
        return self.elements * (size.master + update_rule(self.rule).state_bytes(size.state)) + self.matrix_states


MOMENTUM: Final = 2.0
"""Bytes of a number that is gathered to multiply whole matrices, which is done in 16 bits."""


def updates_matrix(name: str, weight: Weight) -> bool:
    """Whether an optimizer updates a weight by its rule for matrices."""
    own = optimizer(name)
    return own.matrix_rule is not None and (weight.hidden or (own.tables and weight.columns > 1))


def momentum_of(name: str, weights: Iterable[Weight], cut: Callable[[Weight], bool]) -> list[Weight]:
    """The weights of whose matrices momentum is gathered, so that ranks with shares can multiply whole ones."""
    rule = optimizer(name).matrix_rule
    if rule is None or rule.of_matrix is None:
        return []
    return [one._replace(width=MOMENTUM) for one in weights if one.trainable and updates_matrix(name, one) and cut(one)]


def by_rule(
    name: str, weights: Iterable[tuple[Weight, int, int]], size: Bytes, cut: Callable[[Weight], bool] = lambda _: False
) -> tuple[Updated, ...]:
    """Trained weights, each with the elements of it that are held here and how many there are of it, by the rule of an
    optimizer that updates them. Where matrices lie `cut` among ranks, each rank computes what whole ones cost."""
    own = optimizer(name)
    rule = own.matrix_rule
    if rule is None:
        found = list(weights)
        if not found:  # nothing is trained here
            return ()
        elements = sum(held * times for _, held, times in found)
        return (Updated(name, elements, sum(times for *_, times in found)),)
    plain, matrices = Updated(name), Updated(f"{name}{MATRICES}")
    for weight, held, times in weights:
        if not updates_matrix(name, weight):
            plain = Updated(name, plain.elements + held * times, plain.tensors + times)
            continue
        rows, columns = weight.rows // weight.stack, weight.columns
        each = weight.stack * times
        share = held / weight.elements * each
        matrices = Updated(
            matrices.rule,
            matrices.elements + held * times,
            matrices.tensors + times,
            matrices.matrices + rule.of_matrix(rows, columns) * (each if cut(weight) else share)
            if rule.of_matrix
            else NOTHING,
            matrices.matrix_states + rule.matrix_state_bytes(rows, columns, size.state) * share,
        )
    return (plain, matrices) if matrices.tensors else (plain,)
