"""Whether chances are what they say: of the runs that were foretold to run with so large a chance, how many did."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from foretell.validation.score import Verdict

BOUNDS: Final = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
"""Of the chances that are told together."""


class Foretold(NamedTuple):
    """Runs whose chance lay between two bounds."""

    least: float
    most: float
    runs: int
    chance: float  # in the mean
    ran: float  # the share of them that did


def calibration(verdicts: Iterable[Verdict]) -> list[Foretold]:
    """The most likely ones first; bounds between which no chance lies are left out."""
    known = list(verdicts)
    found: list[Foretold] = []
    for least, most in pairwise(BOUNDS):
        own = [one for one in known if least <= one.chance < most or one.chance == most == BOUNDS[-1]]
        if own:
            chance, ran = statistics.fmean(one.chance for one in own), statistics.fmean(one.ran for one in own)
            found.append(Foretold(least, most, len(own), chance, ran))
    return found[::-1]
