"""Inputs of layers that run again, in shares: each tensor rank saves a part of what all of them have whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.axis_names import AxisName
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, replaced, with_fields
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import MeshAxis
from foretell.plan.syntax import Option, WordChoice
from foretell.units import product

if TYPE_CHECKING:
    from foretell.plan.plan import Plan
    from foretell.plan.setting import Setting


class Partitioned(Policy, frozen=True, kw_only=True, tag="partitioned"):
    """Whether what a layer saves to run again lies in shares among the tensor ranks, and is gathered when it does."""

    word: ClassVar[str] = "partitioned"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 21
    searched: ClassVar[bool] = False  # `tp:sp` saves as much and sends nothing more
    summary: ClassVar[str] = "inputs of layers that run again are saved in shares among the tensor ranks"
    references: ClassVar[tuple[str, ...]] = (
        "Rajbhandari et al. 2020 (ZeRO), arXiv 1910.02054, section 6.1: partitioned activation checkpointing",
        "DeepSpeed 0.19, deepspeed/runtime/activation_checkpointing/checkpointing.py: partition_activations",
        "Megatron-Core 0.15, megatron/core/tensor_parallel/random.py: CheckpointFunction, distribute_saved_activations",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("on", {"partitioned": True}),)
    example: ClassVar[str] = "+partitioned"

    on: bool = False

    @classmethod
    def choices(cls) -> tuple[Partitioned, ...]:
        return cls(), cls(on=True)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if not self.on:
            return
        plan, tensor, rule = setting.plan, setting.plan.axis(Tensor), setting.plan.policy(Recompute).rule
        without = changed(plan, Partitioned())
        if tensor is None or tensor.ranks == 1:
            yield Refusal(
                "shares to save", "+partitioned, but no tensor ranks have the same activations", mends=without
            )
        elif tensor.sequence:
            why = f"+partitioned with tp{tensor.ranks}:sp: layers have shares of their inputs already"
            yield Refusal(
                "shares to save", why, mends=(*without, *replaced(plan, tensor, with_fields(tensor, sequence=False)))
            )
        if rule != Recompute(granularity="block").rule:
            why = "+partitioned without +recompute:block: it is the inputs of each layer that are saved in shares"
            yield Refusal("inputs to share", why, mends=(*without, *changed(plan, Recompute(granularity="block"))))


def sharers(plan: Plan, axes: Iterable[MeshAxis]) -> int:
    """Ranks of some axes among which a plan's policies have the inputs of layers that run again divided; 1: none."""
    return product(axis.ranks for axis in axes if axis.name == AxisName.TP) if plan.policy(Partitioned).on else 1
