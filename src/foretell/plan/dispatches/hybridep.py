"""HybridEP: DeepEP's two hops, by copies that the memory units make, which few multiprocessors start.

A node is all that NVLink reaches, so that up to 72 GPUs of an NVL72 rack have no second hop.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.dispatches.deepep import DeepEP


class HybridEP(DeepEP, frozen=True):
    name = "hybridep"
    summary = "the same hops as deepep, by fewer multiprocessors"
    references = (
        "github.com/deepseek-ai/DeepEP, branch hybrid-ep: tokens once to each node, then to each rank",
        "Megatron-LM 3df2009, megatron/core/transformer/transformer_config.py: moe_hybridep_num_sms is 16",
    )
    multiprocessors: ClassVar[int] = 16


DISPATCH = HybridEP()
