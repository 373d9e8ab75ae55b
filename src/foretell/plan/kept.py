"""What a trainer's kernels keep for the backward pass, where it is not what PyTorch's operators keep one by one."""

from __future__ import annotations

from typing import Literal

import msgspec


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One choice for each kernel that trainers write in several ways."""

    loss: Literal["logarithms", "softmax", "logits"]
    # Of a copy of the logits in fp32 the log-softmax beside it; the copy, which became the softmax; or no copy, and the
    # logits, which become their own gradient.
    gated: Literal["each", "inputs"]  # of f(gate) * up what each of the two operators reads, or gate and up alone
    weighted: Literal["outputs", "inside"]
    # The router's weights are multiplied with what experts made, which is kept, or inside their activation.
    low: Literal["read", "cast"]  # inputs of products in 8 bits or fewer: as they were read, or as they were cast
