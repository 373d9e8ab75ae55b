"""Why a plan does not fit: the rule, the numbers, and a way out. A value, never an exception."""

from __future__ import annotations

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """One rule that a plan breaks."""

    rule: str  # a short stable name, by which refusals are counted: "batch divides"
    why: str  # the rule with its numbers: "a batch of 100 is not a multiple of dp8 x m16 = 128"
    way_out: str = ""  # what would work: "--batch 128, or +m4"

    def __str__(self) -> str:
        return f"{self.why} (rule: {self.rule})"
