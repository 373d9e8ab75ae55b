"""How long gradients are made to take: on real ranks by waiting, in virtual time by its clock.

Real ranks take as long as they compute, which depends on whoever else wants a core. With a tempo each of them waits
until its time is over: more ranks than cores keep paces that were asked for, and virtual time knows them beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from foretell.errors import BadInput


class Tempo(msgspec.Struct, frozen=True):
    """Seconds of a gradient (0: as long as it computes), times a factor that is drawn for each.

    jitter      the spread of a lognormal factor whose mean is 1 (0: none)
    often       the share of gradients that straggle, and `times` as long (Chen et al. 2016, arXiv 1604.00981)
    """

    seconds: float = 0.0
    jitter: float = 0.0
    often: float = 0.0
    times: float = 1.0

    @property
    def mean(self) -> float:
        """Seconds of a gradient, over many of them."""
        return self.seconds * (1 + self.often * (self.times - 1))

    def drawn(self, rank: int, seed: int) -> Iterator[float]:
        """Seconds of one gradient after the other."""
        draws = np.random.default_rng([seed, rank, 3])
        while True:
            yield self.seconds * uneven(self.jitter, self.often, self.times, draws)


FREE = Tempo()


def uneven(jitter: float, often: float, times: float, draws: np.random.Generator) -> float:
    """How many times as long as planned the next gradient takes."""
    factor = math.exp(jitter * draws.standard_normal() - jitter**2 / 2) if jitter else 1.0
    return factor * times if often and draws.random() < often else factor


def two_numbers(text: str, between: str, where: str, fix: str) -> tuple[float, float]:
    """As a person writes them: 0.1x5."""
    if not text:
        return 0.0, 0.0
    try:
        first, second = map(float, text.split(between))
    except ValueError:
        raise BadInput(f"{text!r} are not two numbers", where=where, fix=fix) from None
    if not (0 < first < math.inf and 0 <= second < math.inf):
        raise BadInput(f"{text!r} is out of range", where=where, fix=fix)
    return first, second


def straggling(text: str) -> tuple[float, float]:
    """The share of gradients that straggle, and how many times as long they take: '0.1x5'."""
    fix = "0.1x5: a tenth of the gradients takes 5 times as long"
    often, times = two_numbers(text, "x", "--stragglers", fix)
    if often > 1 or (text and times < 1):
        raise BadInput("disturbances make things slower", where="--stragglers", fix=fix)
    return often, times or 1.0


def spread(jitter: float) -> float:
    """Of the times of gradients."""
    if not 0 <= jitter < math.inf:
        raise BadInput("disturbances make things slower", where="--jitter", fix="0.2")
    return jitter


def tempo(seconds: float, jitter: float, stragglers: str) -> Tempo:
    """As options say it."""
    found = Tempo(seconds, spread(jitter), *straggling(stragglers))
    if found != FREE and not seconds:
        what = "the times of gradients are spread around one that nobody said"
        raise BadInput(what, where="--jitter, --stragglers", fix="--pace 40ms too")
    return found
