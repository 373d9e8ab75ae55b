"""What the axes of a plan do together: which of them share a dim, and which keep weights in shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.plan.storage import STORAGES, Storage
from foretell.plan.strategy import MeshAxis
from foretell.units import product

if TYPE_CHECKING:
    from foretell.plan.plan import Plan


def sharing(plan: Plan, dim: str) -> tuple[MeshAxis, ...]:
    """The axes of more than one rank that share a dim, in all of the model or between its layers."""
    axes = (axis for strategy in plan.axes for axis in strategy.axes())
    return tuple(axis for axis in axes if axis.ranks > 1 and dim in (axis.splitting.dim, axis.splitting.between))


def shares(plan: Plan, dim: str) -> int:
    """Into how many shares the axes of a plan cut a dim."""
    return product(axis.ranks for axis in sharing(plan, dim))


def storage(plan: Plan) -> Storage:
    """How a plan keeps weights between uses: as the ranks do that keep most of it in shares.

    Ranks that share a sequence store weights as the data ranks do, so one data rank can still mean shares.
    """
    context = any(axis.splitting.attention for axis in sharing(plan, "sequence"))
    axes = (axis for strategy in plan.axes for axis in strategy.axes() if axis.ranks > 1 or context)
    return max((axis.storage for axis in axes), key=_kept, default=STORAGES["replicated"])


def _kept(storage: Storage) -> int:
    return storage.states + storage.gradients + storage.weights
