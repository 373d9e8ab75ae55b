"""What a strategy for a part of the model says of the rest of it: the same there on all its ranks, or other samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from foretell.plan.refusal import Refusal
from foretell.plan.repair import replaced, with_fields
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import WordChoice
from foretell.units import product

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

REST: Final = WordChoice("rest", {"data": "sample"})


def refused_rest(strategy: Strategy, only: str, rest: str, setting: Setting) -> Iterator[Refusal]:
    """The refusal of a rest where there is none, and of samples that its ranks cannot share."""
    plan, plain = setting.plan, with_fields(strategy, rest="")
    if rest and not only:
        why = "data is for the rest of the model, and this is for all of it"
        yield Refusal("a part and a rest", why, mends=replaced(plan, strategy, plain))
    axes = (axis for other in plan.axes for axis in other.axes())
    splits = product(axis.ranks for axis in axes if axis.splitting.dim == "sample")
    samples = setting.job.batch // (splits * plan.microbatches)
    if rest and only and samples % strategy.ranks:
        why = f"{strategy.ranks} ranks do not divide the {samples} samples of a micro-batch in the rest of the model"
        yield Refusal("samples of the rest", why, mends=replaced(plan, strategy, plain))
