"""How wide an answer's interval is: learnt from measured runs, reason by reason.

Each reason to doubt a prediction (kernels that nobody timed, software whose constants were read off its code) has a
width, and widths add up in the logarithm: factors multiply. They are chosen together so that nine of ten published runs
lie inside (quantile regression, no width below zero: better evidence is never wider), every source of runs with the
weight of the square root of its number. Then each source is left out in turn, its runs are tried with what the others
taught, and all widths are stretched until nine of ten of those lie inside (conformal prediction by groups: Vovk et al.
2005; Lee, Barber, Willett 2023, arXiv 2306.06342). Software differs in how far it is off beyond these reasons: each
trainer has a stretch of its own, drawn towards that of the software it is based on, and that towards all software
(`validation/software_widths.py`). `foretell validate --coverage` does it again and prints it;
`--learn` writes `bands.json`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from foretell.oracle.carried import EffectSpread

ALWAYS: Final = "always"

REASONS: Final = {
    ALWAYS: "what runs differ in that no description has",
    "kernels": "kernels of this device were not timed",
    "convolutions": "most of the work is convolutions",
    "software": "constants of this trainer were not fitted to runs of it",
    "links": "collectives over these links were not timed",
    "ranks": "several ranks wait for each other",
    "nodes": "the plan takes several nodes",
    "messages": "convolutions wait for messages: by their share of the step",
}
"""Why a prediction can be wrong, in the order in which they are told."""

ANCHORED: Final = {
    ALWAYS: "what two runs of one trainer differ in",
    "convolutions": "most of the work is convolutions",
    "software": "constants of this trainer were not fitted to runs of it",
    "unlike": "what measured runs leave open of this one: their standard deviation of it (`posterior.Posterior`)",
}
"""The same for a prediction that a measured run corrects."""

FILE: Final = Path(__file__).with_name("bands.json")


class Widths(msgspec.Struct, frozen=True):
    """Widths by reason, as logarithms of factors, and how far they are stretched."""

    widths: dict[str, float]
    stretch: float
    runs: int  # (or pairs of runs) that they were learnt from
    sources: int
    inside: float  # share of runs inside when their source is left out
    unseen: float = 0.0  # how far they are stretched for a trainer of which no run was measured; 0: not learnt
    software: dict[str, float] = {}  # how far beside that, by trainer; "": all of it

    def factors(self, reasons: Mapping[str, float]) -> dict[str, float]:
        """What each reason contributes, by how much it applies; their product is the band, either way."""
        return {
            reason: math.exp(self.stretch * much * self.widths[reason])
            for reason, much in reasons.items()
            if much * self.widths[reason]
        }

    def of_software(self, levels: Iterable[str]) -> float:
        """How far widths of a trainer are stretched beside that: by its own runs, or those of the software below it."""
        return next((self.software[name] for name in levels if name in self.software), self.software.get("", 1.0))


class Bands(msgspec.Struct, frozen=True):
    """All that was learnt: for predictions, for those that a measured run corrects, and how much it corrects."""

    predicted: Widths
    anchored: Widths
    carried: EffectSpread


@functools.cache
def bands() -> Bands:
    """What ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=Bands)
