"""Whole layers run again, one at a time or several from one input to the next."""

from __future__ import annotations

from foretell.model.graph import Node
from foretell.plan.recomputation import Recomputation, Saving
from foretell.units import Quantity, at_most


class WholeLayers(Recomputation, frozen=True):
    """`every`: layers that run again together; with 1 the input of each is saved."""

    summary = "the input of each layer is saved; a layer runs again as a whole before its backward pass"
    references = ("Chen et al. 2016 (sublinear memory), arXiv 1604.06174",)
    place = 50

    every: int = 1

    def saving(self, node: Node, in_layer: bool) -> Saving:
        return Saving.AGAIN if in_layer else Saving.SAVE

    def together(self, layers: Quantity) -> Quantity:
        return at_most(layers, self.every)

    def of_one_layer(self) -> Recomputation:
        return RECOMPUTATION


RECOMPUTATION = WholeLayers()
