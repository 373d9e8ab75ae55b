"""What every way to recompute activations says about itself: which outputs of a layer are saved, which run again.

For each operator of a layer a rule has one of three answers:

    SAVE      its output, and what autograd keeps of it, stays in memory until the backward pass
    AGAIN     its output is dropped after its last reader, and computed again before the backward pass that needs it
    INSIDE    its output stays, what its kernel keeps beside its operands does not: the kernel runs again for it

Operators in a row that run again do so together, from what they read, which is saved. What that means for memory,
time and traffic follows (`program.recomputed`); a rule names no tensor.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from foretell.registry import OpenSet
from foretell.units import Quantity

if TYPE_CHECKING:
    from foretell.model.graph import Node

RECOMPUTATIONS = OpenSet("foretell.plan.recomputations", "recomputation")

NUMBERED = ("every", "first", "nth")
"""Words that a number follows: of layers that run again together, of the first of a stage, or of which one does."""


class Saving(enum.Enum):
    """What becomes of an operator's output between the forward and the backward pass."""

    SAVE = "save"
    AGAIN = "again"
    INSIDE = "inside"


DROPS = (Saving.AGAIN, Saving.INSIDE)
"""Those that drop something, the one that drops more first."""


class Recomputation(msgspec.Struct, frozen=True):
    """One rule. The name of its file is what plans call it: `+recompute:block`."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]] = ()

    place: ClassVar[int]
    """Where it stands among the others, those that recompute less first."""

    searched: ClassVar[bool] = True
    """Whether the search tries it unasked."""

    at_once: ClassVar[bool] = False
    """Whether all that runs again of a layer does so before its backward pass begins (one checkpoint around a layer
    that saves some outputs), rather than each part just before it is needed (a checkpoint around each part)."""

    saves_sums: ClassVar[bool] = False
    """Whether what ranks summed or exchanged is saved as it came, so that it does not travel again."""

    asks_each: ClassVar[bool] = False
    """Whether each operator of a layer passes through Python on its way, which says whether it is saved."""

    with_ends: ClassVar[bool] = False
    """Whether what lies outside the layers of a stage runs again with them; losses do not."""

    joins: ClassVar[bool] = False
    """Whether it can be said together with others: `+recompute:layernorm,moe_act`."""

    spares_layers: ClassVar[bool] = False
    """Whether some layers of a stage save all: which ones, `spares` says."""

    modules: ClassVar[tuple[str, ...]] = ()
    """What Megatron calls it among its `recompute_modules`."""

    def saving(self, node: Node, in_layer: bool) -> Saving:
        """What becomes of an operator's output; many lie outside the layers."""
        return Saving.SAVE

    def savings(self, nodes: Sequence[Node], in_layer: bool) -> list[Saving]:
        """The same of all operators in a row, for rules that look at more than one of them."""
        return [self.saving(node, in_layer) for node in nodes]

    def together(self, layers: Quantity) -> Quantity:
        """Of a stage of this many layers, how many run again together, from one input (0: none does as a whole)."""
        return 0

    def spares(self, layer: int) -> bool:
        """Whether a layer saves all, whatever the rule says of others: its place among those of its stage, from 0."""
        return False

    def of_one_layer(self) -> Recomputation:
        """The rule within a layer: those that differ only in which layers run again have the same."""
        return self


class Together(Recomputation, frozen=True):
    """Several rules at once: an operator runs again where one of them says so."""

    summary = "what each of several rules drops is dropped"
    place = 40

    rules: tuple[Recomputation, ...] = ()

    def savings(self, nodes: Sequence[Node], in_layer: bool) -> list[Saving]:
        each = zip(*(rule.savings(nodes, in_layer) for rule in self.rules), strict=True)
        return [next((saving for saving in DROPS if saving in said), Saving.SAVE) for said in each]


@functools.cache
def recomputation(name: str) -> Recomputation:
    """The rule of this name, or of several with commas between."""
    names = name.split(",")
    if len(names) > 1:
        return Together(tuple(map(recomputation, names)))
    return RECOMPUTATIONS[name].RECOMPUTATION


@functools.cache
def recomputations() -> dict[str, Recomputation]:
    """Every rule by its name, those that recompute less first."""
    return dict(sorted(((name, recomputation(name)) for name in RECOMPUTATIONS), key=lambda one: one[1].place))
