"""What measured runs say of another one: conditional means and what they leave open (`carried.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy

from foretell.oracle.bands import LeftOpen
from foretell.oracle.carried import HOST, EffectSpread, RunTraits, SeenRun, covariance, shared

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

PACE: Final = 0.5
"""Of each step to the next solution, from where steps shrink by less than that. With whole steps it swings for ever
where a run was twice off or more; so it ended for each of 800 drawn sets of runs, up to a factor of 12 off, in 17
rounds in the middle."""

ROUNDS: Final = 200
CONVERGED: Final = 1e-10


class Observed(NamedTuple):
    """A measured run, and what its logarithm changes by with those of what computes, of messages and of the host."""

    traits: RunTraits
    shares: tuple[float, float, float]
    log: float  # of measured over predicted, with all factors 1


class Conditional(NamedTuple):
    """What measured runs say of another's factors: expected logarithms, and the covariances that they leave."""

    logs: tuple[float, float, float]
    between: tuple[tuple[float, float, float], ...]
    surprise: float  # how far the runs were from what the others said of them


SINGULAR: Final = 1e-9
"""Of the mean variance, added to each so that a run which was measured twice has an inverse."""


def surprise_of(gram: Numbers, off: Numbers) -> float:
    """How far runs are from what the others say of them, one alone from what was predicted: the root mean square.

    What all but one say of that one follows from the inverse of the whole (Rasmussen, Williams 2006, equation 5.12).
    """
    if not len(off):
        return 0.0
    inverse = numpy.linalg.inv(gram + (SINGULAR * numpy.trace(gram) / len(off) or 1.0) * numpy.eye(len(off)))
    return float(numpy.sqrt(numpy.square(inverse @ off / numpy.diag(inverse)).mean()))


def conditional(seen: Sequence[Observed], asked: RunTraits, spread: EffectSpread) -> Conditional:
    """As `Posterior`, for runs whose parts do not add up to a step: the effect of the scale is in each factor.

    Factors are of a stack, whatever is planned on it, so the effect of the kind of plan is of each run alone.
    """
    shares = numpy.array([one.shares for one in seen]).reshape(-1, 3)
    between = numpy.array([[_alike(one.traits, other.traits, spread) for other in seen] for one in seen])
    gram: Numbers = numpy.einsum("ip,ijpq,jq->ij", shares, between.reshape(len(seen), len(seen), 3, 3), shares)
    gram += (spread.run + spread.axes) * numpy.eye(len(seen))
    towards: Numbers = numpy.array([_alike(one.traits, asked, spread) for one in seen]).reshape(-1, 3, 3)
    cross: Numbers = numpy.einsum("ip,ipq->iq", shares, towards)
    pulled = cast("Numbers", numpy.linalg.pinv(gram, hermitian=True)) @ cross
    logs: Numbers = numpy.array([one.log for one in seen]) @ pulled
    left: Numbers = numpy.array(_alike(asked, asked, spread)) - cross.T @ pulled
    a, b, c = logs.tolist()
    surprise = surprise_of(gram, numpy.array([one.log for one in seen]))
    return Conditional((a, b, c), tuple((x, y, z) for x, y, z in left.tolist()), surprise)


def _alike(one: RunTraits, other: RunTraits, spread: EffectSpread) -> list[list[float]]:
    """Covariances of the factors of two runs, apart from what is of each run alone."""
    *own, _ = covariance(one, other, spread)
    like = 1.0 if one.trainer == other.trainer else spread.trainer
    *_, scale, axes = shared(one, other)
    all_of = like * (scale * spread.scale + axes * spread.axes)
    return [[all_of + (own[at] if at == to else 0.0) for to in range(3)] for at in range(3)]


class Posterior:
    """What measured runs say of others.

    A step is the sum of its parts, and each part has a factor of its own: the logarithm of a step is linear in those of
    its factors only nearby. So it is solved again where the last solution lies, until it stays (Gauss-Newton, damped).
    """

    def __init__(self, seen: Iterable[SeenRun], spread: EffectSpread) -> None:
        self._seen, self._spread = tuple(dict.fromkeys(seen)), spread
        seconds = numpy.array([one.seconds for one in self._seen])
        measured = numpy.array([one.log for one in self._seen]) + numpy.log(seconds.sum(1))
        between = numpy.array([self._with(one.traits) for one in self._seen])
        logs, pace, last = numpy.zeros(seconds.shape), 1.0, math.inf
        self._off: Numbers = measured
        for _ in range(ROUNDS):
            parts = seconds * numpy.exp(logs)
            self._shares: Numbers = parts / parts.sum(1)[:, None]
            gram = numpy.einsum("ip,ijp,jp->ij", self._shares, between[..., :3], self._shares) + between[..., 3]
            self._gram: Numbers = gram
            self._off = measured - numpy.log(parts.sum(1)) + (self._shares * logs).sum(1)
            self._pull: Numbers = numpy.linalg.lstsq(gram, self._off, rcond=None)[0]
            change = numpy.array([self._from(own) for own in between]) - logs
            largest = float(numpy.abs(change).max())
            if largest < CONVERGED:
                break
            pace = pace if largest < PACE * last else PACE
            logs, last = numpy.clip(logs + pace * change, -20.0, 20.0), largest  # of few runs no part runs away

    @property
    def surprise(self) -> float:
        """How far the runs were from what the others said of them."""
        return surprise_of(self._gram, self._off)

    def left_open(self, asked: RunTraits, seconds: Sequence[float]) -> LeftOpen:
        """What the measured runs leave open of another one."""
        elsewhere = all(one.traits.device != asked.device for one in self._seen)
        return LeftOpen(self.deviation(asked, seconds), self.surprise, elsewhere, seconds[HOST] / sum(seconds))

    def factors(self, asked: RunTraits) -> tuple[float, float, float]:
        """Measured over predicted of a run's computing, messages and host, as expected."""
        found = numpy.exp(self._from(self._with(asked)))
        return float(found[0]), float(found[1]), float(found[2])

    def log(self, asked: RunTraits, seconds: Sequence[float]) -> float:
        """Of measured over predicted of a whole step, as expected."""
        later = sum(own * factor for own, factor in zip(seconds, self.factors(asked), strict=True))
        return math.log(later / sum(seconds))

    def deviation(self, asked: RunTraits, seconds: Sequence[float]) -> float:
        """Standard deviation of that logarithm: what the measured runs leave open."""
        parts = numpy.array(seconds) * self.factors(asked)
        shares = parts / parts.sum()
        *own, all_of = covariance(asked, asked, self._spread)
        between = self._with(asked)
        shared_with = (between[:, :3] * self._shares * shares).sum(1) + between[:, 3]
        told = float(shared_with @ numpy.linalg.pinv(self._gram, hermitian=True) @ shared_with)
        known = sum(share**2 * part for share, part in zip(shares.tolist(), own, strict=True)) + all_of
        return math.sqrt(max(0.0, known - told))

    def _with(self, traits: RunTraits) -> Numbers:
        return numpy.array([covariance(traits, one.traits, self._spread) for one in self._seen])

    def _from(self, between: Numbers) -> Numbers:
        """The logarithms of a run's factors, by how much it shares with each that was seen."""
        return (between[:, :3] * self._shares * self._pull[:, None]).sum(0) + between[:, 3] @ self._pull
