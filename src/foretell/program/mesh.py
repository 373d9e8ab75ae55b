"""The mesh of ranks that a plan stands for: its axes, outermost first, as lowering sees them."""

from __future__ import annotations

from dataclasses import replace

from foretell.plan.plan import Plan
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import MeshAxis


def mesh(plan: Plan) -> tuple[MeshAxis, ...]:
    """All axes of more than one rank, the pipeline's among them.

    Ranks that share a sequence hold the same weights, so they store them as the ranks do that share
    the batch. A tensor axis leaves experts to the axis that divides them where the plan says so.
    """
    data, tensor = plan.axis(Data), plan.axis(Tensor)
    axes: list[MeshAxis] = []
    for strategy in plan.axes:
        for axis in strategy.axes():
            if axis.name == "cp" and data is not None:
                axis = replace(axis, storage=data.axes()[-1].storage)
            if axis.name == "tp" and data is not None and tensor is not None and data.expert_tensor == 1:
                treats = "divide" if data.experts > data.world else "whole"
                axis = replace(axis, splitting=replace(axis.splitting, experts=treats))
            axes.append(axis)
    return tuple(axis for axis in axes if axis.ranks > 1)


def stride(axes: tuple[MeshAxis, ...], names: tuple[str, ...]) -> int:
    """How far apart the ranks of a group are: the ranks of all axes inside its innermost one."""
    inside = 1
    for axis in reversed(axes):
        if axis.name in names:
            return inside
        inside *= axis.ranks
    return inside
