"""How close a plan comes to filling a device, and what that has meant for runs that were measured."""

from __future__ import annotations

from typing import Final

from foretell.oracle.priced_plans import Candidate
from foretell.oracle.search import SearchResult

CLOSE: Final = 0.95
"""A plan that fills more of what a run can use is told to be close."""

ROOMY: Final = 0.9
"""The most that the plan fills that is named beside it."""

FAILED: Final = (9, 46)
"""Of the published runs (language models, the ultra-scale sweep) that are foretold to fill 95 to 100 % of what a run
can use, so many failed of so many. Of those foretold to fill 80 to 95 %, 3 of 143 did."""

ABOVE: Final = 0.14
"""Nine in ten measured peaks of these studies lie less than this share above the predicted one (726 runs)."""


def close(memory_bytes: float, usable: float) -> bool:
    """Whether a plan that fits may well not."""
    return CLOSE * usable < memory_bytes <= usable


def roomy(found: SearchResult, usable: float) -> Candidate | None:
    """The fastest plan that leaves room: it is on the front, because all that are faster take more memory."""
    return next((one for one in found.pareto if one.memory_bytes <= ROOMY * usable), None)
