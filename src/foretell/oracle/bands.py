"""How wide an answer's interval is: learnt from measured runs, reason by reason.

Each reason to doubt a prediction (kernels that nobody timed, software whose constants were read off its code) has a
width, and widths add up in the logarithm: factors multiply. They are chosen together so that nine of ten published runs
lie inside (quantile regression, no width below zero: better evidence is never wider), every source of runs with the
weight of the square root of its number. Then each source is left out in turn, its runs are tried with what the others
taught, and all widths are stretched until nine of ten of those lie inside (conformal prediction by groups: Vovk et al.
2005; Lee, Barber, Willett 2023, arXiv 2306.06342). Software differs in how far it is off beyond these reasons: each
trainer has a stretch of its own, drawn towards that of the software it is based on, and that towards all software
(`validation/software_widths.py`). `foretell validate --coverage` does it again and prints it;
`--learn` writes `bands.json`, and `anchored.json` for predictions that a measured run corrects: the same, learnt from
pairs of runs of one source as they are predicted without it (`validation/anchors.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

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
    "unlike": "what measured runs leave open of this one: their standard deviation of it (`posterior.Posterior`)",
    "surprise": "the same times how far measured runs were from what the others (or none) said of them",
    "host": "the same times the share of the step that waits for the host",
}
"""The same for a prediction that a measured run corrects."""

FILE: Final = Path(__file__).with_name("bands.json")
ANCHORED_FILE: Final = Path(__file__).with_name("anchored.json")


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


class LeftOpen(NamedTuple):
    """What measured runs leave open of another one.

    Runs that were far off say that variances are larger than was learnt, and so is what they leave open (as of
    Student-t processes: Shah, Wilson, Ghahramani 2014); of the very run that was measured they leave nothing open.
    """

    unlike: float  # standard deviation of the logarithm of its step
    surprise: float  # root mean square of the logarithms by which they were off what the others say of them
    elsewhere: bool  # none is on its device
    host: float  # share of its step that waits for the host

    def reasons(self, of_run: Collection[str]) -> dict[str, float]:
        """Words of `ANCHORED`, and how much of each applies; `of_run` are reasons to doubt the plain prediction."""
        own = {reason: 1.0 for reason in (ALWAYS, "convolutions") if reason == ALWAYS or reason in of_run}
        return own | {
            "unlike": self.unlike,
            "surprise": self.unlike * self.surprise,
            "host": self.unlike * self.host,
        }

    def band(self, plain: float, of_run: Collection[str], levels: Iterable[str]) -> float:
        """The factor either way after them, of a run whose own is `plain`. A run on another device narrows nothing."""
        learnt = anchored()
        found = math.prod(learnt.factors(self.reasons(of_run)).values()) ** learnt.of_software(levels)
        return max(plain, found) if self.elsewhere else min(plain, found)


class Bands(msgspec.Struct, frozen=True):
    """What was learnt: for predictions, and how much of what a run is off by another one is too."""

    predicted: Widths
    carried: EffectSpread


@functools.cache
def bands() -> Bands:
    """What ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=Bands)


@functools.cache
def anchored() -> Widths:
    """The same for predictions that measured runs correct."""
    return msgspec.json.decode(ANCHORED_FILE.read_bytes(), type=Widths)
