"""Overlap of the rows of experts: they travel while a pass of another micro-batch computes.

Megatron's batch-level overlap: once the pipeline is full, a forward and the backward of an earlier micro-batch run
together, layer by layer. One forward more comes before the first backward, so that the two do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.dispatch import dispatch
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, replaced, with_fields
from foretell.plan.strategies.data import Data
from foretell.plan.syntax import Option, WordChoice

if TYPE_CHECKING:
    from foretell.plan.plan import Plan
    from foretell.plan.setting import Setting
    from foretell.plan.trainer import Trainer

WHOLE = ("block", "full", "moe")
"""Recomputation that would send rows a second time."""


class A2AOverlap(Policy, frozen=True, kw_only=True, tag="a2a_overlap"):
    """Whether the forward of a micro-batch runs together with the backward of another, for the rows of experts."""

    word: ClassVar[str] = "a2a_overlap"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 61
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "rows of experts travel beside a pass of another micro-batch"
    references: ClassVar[tuple[str, ...]] = (
        "Megatron-Core 0.15, megatron/core/pipeline_parallel/combined_1f1b.py: overlap_moe_expert_parallel_comm",
        "Megatron-Core 0.15, megatron/core/pipeline_parallel/schedules.py: get_pp_rank_microbatches, one more",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("on", {"a2a-overlap": True}),)
    example: ClassVar[str] = "+a2a-overlap"

    on: bool = False

    @classmethod
    def choices(cls) -> tuple[A2AOverlap, ...]:
        return cls(), cls(on=True)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if not self.on:
            return
        plan, data = setting.plan, setting.plan.axis(Data)
        without = changed(plan, A2AOverlap())
        if data is None or data.experts == 1:
            yield Refusal("rows to overlap", "+a2a-overlap, but the plan divides no experts (ep)", mends=without)
        elif not dispatch(data.dispatch or setting.trainer.experts.dispatch).routed:
            others = replaced(plan, data, with_fields(data, dispatch=""))
            why = f"+a2a-overlap with {data.dispatch}: it sends no rows from rank to rank"
            yield Refusal("rows to overlap", why, mends=(*others, *without))
        named = plan.policy(Recompute).option.split(",")
        if any(word in WHOLE for word in named) or plan.policy(Recompute).numbered:
            why = f"+a2a-overlap with +recompute:{','.join(named)}: rows would travel a second time"
            yield Refusal("overlap with recompute", why, mends=(*changed(plan, Recompute()), *without))


def multiprocessors(plan: Plan, trainer: Trainer) -> int:
    """How many of a device are held by messages that run beside a pair of passes; 0: they are waited for."""
    if not plan.policy(A2AOverlap).on:
        return trainer.experts.beside
    data = plan.axis(Data)
    return dispatch((data.dispatch if data else "") or trainer.experts.dispatch).multiprocessors
