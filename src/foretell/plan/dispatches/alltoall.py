"""All-to-all: a row for each expert of a token, straight to the rank that has it."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.dispatch import Dispatch, Sending
from foretell.plan.reach import Owners


class AllToAll(Dispatch, frozen=True):
    name = "alltoall"
    summary = "a row for each expert of a token, straight to its rank"
    references = (
        "Lepikhin et al. 2021 (GShard), arXiv 2006.16668",
        "Megatron-Core 0.15, megatron/core/transformer/moe/token_dispatcher.py: MoEAlltoAllTokenDispatcher",
        "github.com/NVIDIA/nccl/issues/892: 16 channels between ranks of an H800 node, a block of threads each",
    )
    multiprocessors: ClassVar[int] = 16

    def to_experts(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        return (Sending("all-to-all", "group", 1.0),)

    def home(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        return self.to_experts(owners, ranks)


DISPATCH = AllToAll()
