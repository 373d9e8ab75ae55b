"""What a trainer does with experts that lie on several ranks."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretell.plan.figures import Count


class ExpertRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows travel to experts on other ranks, and home."""

    dispatch: str  # the way that is meant where a plan says none
    sent: Literal["read", "cast"]  # rows to experts as they were made, or as products of few bits read them
    beside: Count
    # Multiprocessors held by messages of experts that run beside the computation of a forward and a backward pass which
    # the schedule has run together; 0: they are waited for.
