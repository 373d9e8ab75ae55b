"""What a trainer's kernels keep for the backward pass, where it is not what PyTorch's operators keep one by one."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretell.plan.figures import Ratio


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One choice for each kernel that trainers write in several ways."""

    loss: Literal["logarithms", "softmax", "logits", "read", "chunks", "chunks twice"]
    # Of a copy of the logits in fp32 the log-softmax beside it; the copy, which became the softmax; no copy, and the
    # logits, which become their own gradient; the logits as they were read, and nothing else; or a piece of the
    # logits at a time, which becomes its own gradient (`plan/policies/loss.py`), at once, or made again in the backward
    # pass.
    compiled_loss: Literal["as eager", "read", "whole read"]  # in steps that are compiled; of whole rows alone
    norms: Literal["read", "written"]  # of an RMS norm what it read, or what its lines keep where they are written out
    gated: Literal["each", "inputs"]  # of f(gate) * up what each of the two operators reads, or gate and up alone
    weighted: Literal["outputs", "inside"]
    # The router's weights are multiplied with what experts made, which is kept, or inside their activation.
    low: Literal["read", "cast", "gates"]
    # Inputs of products in 8 bits or fewer: as they were read, or as they were cast; with `gates` those of f(gate) * up
    # too, in as many bits.
    attended: Ratio
    # Bytes of an element of attention's output in such training, kept once for it and the next product; 0: as it is.
