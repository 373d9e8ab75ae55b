"""The mesh of ranks that a plan stands for: its axes, outermost first, as lowering sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretell.plan.axis_names import AxisName
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
            if axis.name == AxisName.CP and data is not None:
                axis = replace(axis, storage=data.axes()[-1].storage)
            if axis.name == AxisName.TP and data is not None and tensor is not None and data.expert_tensor == 1:
                treats = "divide" if data.experts > (data.shard or data.ranks) else "whole"
                axis = replace(axis, splitting=replace(axis.splitting, experts=treats))
            axes.append(axis)
    return tuple(_told_apart([axis for axis in axes if axis.ranks > 1]))


def _told_apart(axes: list[MeshAxis]) -> Iterator[MeshAxis]:
    """One strategy for several parts has an axis for each, with a name of its own."""
    names = [axis.name for axis in axes]
    for at, axis in enumerate(axes):
        same = names.count(axis.name) > 1
        yield replace(axis, name=f"{axis.name}.{names[:at].count(axis.name)}") if same else axis


def stride(axes: tuple[MeshAxis, ...], names: tuple[str, ...]) -> int:
    """How far apart the ranks of a group are: the ranks of all axes inside its innermost one."""
    inside = 1
    for axis in reversed(axes):
        if axis.name in names:
            return inside
        inside *= axis.ranks
    return inside
