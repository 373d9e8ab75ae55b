"""All-gather: every rank gets all tokens of the group and keeps those of its experts; results are summed back.

A token travels once for each rank however many experts it has, which pays where that is no fewer.
"""

from __future__ import annotations

from foretell.plan.dispatch import Dispatch, Sending
from foretell.plan.reach import Owners


class AllGather(Dispatch, frozen=True):
    name = "allgather"
    summary = "all tokens to every rank, and a reduce-scatter of what experts made"
    references = ("Megatron-Core 0.15, megatron/core/transformer/moe/token_dispatcher.py: MoEAllGatherTokenDispatcher",)
    routed = False

    def to_experts(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        return (Sending("all-gather", "group", 1 / owners.rows),)

    def home(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        return (Sending("reduce-scatter", "group", ranks / owners.rows),)


DISPATCH = AllGather()
