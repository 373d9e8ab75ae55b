"""DeepEP: a token crosses the network once for each node that has experts of it, and NVLink once for each rank.

The rank at the same place of the other node takes it and passes it on while the next ones come, so the slower of
the two hops counts. Results are summed on the way back: in the node first, then over nodes.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.dispatch import Dispatch, Sending
from foretell.plan.reach import Owners


class DeepEP(Dispatch, frozen=True):
    name = "deepep"
    summary = "a token once to each node over the network, then once to each rank over NVLink, both at once"
    references = (
        "DeepSeek-AI 2024 (DeepSeek-V3), arXiv 2412.19437, section 3.2.2",
        "github.com/deepseek-ai/DeepEP: csrc/kernels/internode.cu, docs/legacy.md",
        "Megatron-Core 0.15, megatron/core/transformer/transformer_config.py: moe_deepep_num_sms is 20",
    )
    together = True
    multiprocessors: ClassVar[int] = 20

    def to_experts(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        between = Sending("all-to-all", "nodes", owners.nodes / owners.rows)
        return between, Sending("all-to-all", "node", owners.ranks / owners.rows)

    def home(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        return self.to_experts(owners, ranks)


DISPATCH = DeepEP()
