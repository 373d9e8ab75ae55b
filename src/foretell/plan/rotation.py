"""What a trainer does with keys and values whose positions lie in shares, where they go round."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretell.plan.figures import PerGradient, Ratios, look_up
from foretell.units import Quantity


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How keys, values and their gradients go round, and what kernels do at each turn.

    The traffic is of a turn after the first, in bytes for a number; by pass (`forward`, `backward`), or by pass and
    execution (`forward-compiled`).
    """

    turns: Literal["sends", "gather"]  # keys and values go from rank to rank, or are gathered at once, in one message
    heads: Literal["own", "query"]  # they have heads of their own, or have been repeated for each head of the queries
    gradient: PerGradient  # bytes of a number of their gradients as it goes round; 0: as it was made
    merged: Ratios  # for a number of the queries: what ranks have seen is put together, and gradients added up
    carried: Ratios  # for a number of the keys and values: what is laid side by side to travel

    def traffic(self, phase: str, execution: str, merged: Quantity, carried: Quantity) -> Quantity:
        """Bytes of a turn, of so many numbers of the queries, and of the keys and values."""
        words = f"{phase}-{execution}", phase
        return look_up(self.merged, *words) * merged + look_up(self.carried, *words) * carried


NOTHING = (("any", 0.0),)
USUAL = Rotation(turns="sends", heads="own", gradient=0.0, merged=NOTHING, carried=NOTHING)
"""Keys and values are sent on as they are, by kernels that put together what they see."""
