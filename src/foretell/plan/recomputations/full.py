"""All layers of a stage run again together."""

from __future__ import annotations

from foretell.plan.recomputations.block import WholeLayers
from foretell.units import Quantity


class WholeStage(WholeLayers, frozen=True):
    summary = "the inputs of the stage are saved; all of the stage runs again"
    place = 90
    with_ends = True

    def together(self, layers: Quantity) -> Quantity:
        return layers


RECOMPUTATION = WholeStage()
