"""An option of an algorithm, a topology or a compressor: its usual value, and between which others lie."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TypeVar

Number = TypeVar("Number", int, float)

SOME = 1e-9
"""The least of what must be more than nothing."""


def option(usual: Number, least: float = 0.0, most: float = math.inf) -> Number:
    """A field of a dataclass that `members` checks when a person writes it."""
    return field(default=usual, metadata={"least": least, "most": most})
