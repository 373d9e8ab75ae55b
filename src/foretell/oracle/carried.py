"""How much of what one run's prediction was off by carries over to another run.

What a stack's predictions are off by is taken to be a sum of effects: of the device and of the model on what computes,
of the links on messages, of the trainer on the host, of the scale and of the kind of plan on all, and of the one run.
Two runs share the effects of what they have in common. How far each effect goes is learnt from published runs whose
sources were left out (`validation/carried.py`), and what measured runs say of another is then their conditional mean
(best linear unbiased prediction: Henderson 1975; Gaussian processes: Rasmussen, Williams 2006, chapter 2). So a run of
the same model on the same device corrects more than one of another model, a whole sweep more than one step, and no run
the very opposite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy

from foretell.plan.text import parse

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction
    from foretell.plan.plan import Plan

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

COMPUTING, MESSAGES, HOST = range(3)

HOST_PARTS: Final = ("host", "paging", "other", "input")

HALVED: Final = 2.0
"""Doublings of the number of ranks after which the effect of the scale is shared by 1/e."""

PACE: Final = 0.5
"""Of each step to the next solution, from where steps shrink by less than that. With whole steps it swings for ever
where a run was twice off or more; so it ended for each of 800 drawn sets of runs, up to a factor of 12 off, in 17
rounds in the middle."""

ROUNDS: Final = 200
CONVERGED: Final = 1e-10


class EffectSpread(msgspec.Struct, frozen=True):
    """Variances of the effects, of logarithms of measured over predicted."""

    device: float  # on what computes
    model: float  # on what computes
    links: float  # of a device, on messages
    host: float  # of a trainer, on what the host does
    scale: float  # of the number of ranks, on all
    run: float  # of one run
    trainer: float  # share of all that but the last that runs of two trainers on one stack have in common
    axes: float = 0.0  # of the kind of plan, on all


class RunTraits(NamedTuple):
    """What two runs can have in common."""

    trainer: str
    device: str
    model: str
    ranks: int
    question: tuple[str | float, ...]  # what was asked, and the step predicted for it: equal for one run only
    axes: tuple[str, ...] = ()  # the kind of plan (`axes_of`); none: of any kind


class SeenRun(NamedTuple):
    """A measured run."""

    traits: RunTraits
    seconds: tuple[float, float, float]  # predicted: what computes, messages that are exposed, the host
    log: float  # of measured over predicted


def seconds_of(breakdown: Mapping[str, float]) -> tuple[float, float, float]:
    """A predicted step by what it is corrected by."""
    found = [0.0, 0.0, 0.0]
    for part, seconds in breakdown.items():
        found[kind_of(part)] += seconds
    return found[0], found[1], found[2]


def kind_of(part: str) -> int:
    """What a part of a breakdown is corrected with. A bubble is the computing of other stages."""
    return MESSAGES if part.startswith("exposed") else HOST if part in HOST_PARTS else COMPUTING


def traits_of(found: Prediction) -> RunTraits:
    """Of a predicted run."""
    question = (found.model, found.plan, found.trainer, found.cluster, found.batch, found.step_seconds)
    return RunTraits(found.trainer, found.device, found.model, found.ranks, question, axes_of(parse(found.plan)))


def axes_of(plan: Plan) -> tuple[str, ...]:
    """The axes of a plan that have more than one rank, in one order."""
    return tuple(sorted({axis.word for axis in plan.axes if axis.world > 1})) or ("one device",)


def shared(one: RunTraits, other: RunTraits) -> tuple[float, float, float, float, float, float]:
    """Which effects two runs share, from 0 to 1, in the order of `EffectSpread`."""
    device = float(one.device == other.device)
    doublings = abs(math.log2(one.ranks / other.ranks))
    near = math.exp(-doublings / HALVED)
    like = float(bool(one.axes) and one.axes == other.axes)
    return device, float(one.model == other.model), device, 1.0, near, like


def covariance(one: RunTraits, other: RunTraits, spread: EffectSpread) -> tuple[float, float, float, float]:
    """Of what two runs are off by: in what computes, in messages, in the host, and in all of the step."""
    device, model, links, host, scale, axes = shared(one, other)
    like = 1.0 if one.trainer == other.trainer else spread.trainer
    return (
        like * (device * spread.device + model * spread.model),
        like * links * spread.links,
        like * host * spread.host,
        like * (scale * spread.scale + axes * spread.axes) + (spread.run if one.question == other.question else 0.0),
    )


def weight(asked: RunTraits, measured: RunTraits, kind: int, spread: EffectSpread) -> float:
    """How much of what a part was off by carries over, as a power of the ratio."""
    found, own = covariance(asked, measured, spread), covariance(measured, measured, spread)
    all_of = own[kind] + own[3]
    return (found[kind] + found[3]) / all_of if all_of else 1.0


class Observed(NamedTuple):
    """A measured run, and what its logarithm changes by with those of what computes, of messages and of the host."""

    traits: RunTraits
    shares: tuple[float, float, float]
    log: float  # of measured over predicted, with all factors 1


class Conditional(NamedTuple):
    """What measured runs say of another's factors: expected logarithms, and the covariances that they leave."""

    logs: tuple[float, float, float]
    between: tuple[tuple[float, float, float], ...]


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
    return Conditional((a, b, c), tuple((x, y, z) for x, y, z in left.tolist()))


def left_open(between: Sequence[Sequence[float]], own: float, seconds: Sequence[float]) -> float:
    """The standard deviation that is left of a step's logarithm, by the shares of its parts."""
    shares = numpy.array(seconds) / sum(seconds)
    return math.sqrt(max(0.0, float(shares @ numpy.array(between) @ shares) + own))


def _alike(one: RunTraits, other: RunTraits, spread: EffectSpread) -> list[list[float]]:
    """Covariances of the factors of two runs, apart from what is of each run alone."""
    *own, _ = covariance(one, other, spread)
    like = 1.0 if one.trainer == other.trainer else spread.trainer
    *_, scale, axes = shared(one, other)
    all_of = like * (scale * spread.scale + axes * spread.axes)
    return [[all_of + (own[at] if at == to else 0.0) for to in range(3)] for at in range(3)]


def alike_deviation(spread: EffectSpread) -> float:
    """What a measured run leaves open of another one of its model, device and scale, where both only compute."""
    shared = spread.device + spread.model + spread.scale + spread.axes
    own = shared + spread.run
    return math.sqrt(own - shared**2 / own) if own else 0.0


class Posterior:
    """What measured runs say of others.

    A step is the sum of its parts, and each part has a factor of its own: the logarithm of a step is linear in those of
    its factors only nearby. So it is solved again where the last solution lies, until it stays (Gauss-Newton, damped).
    """

    def __init__(self, seen: Iterable[SeenRun], spread: EffectSpread) -> None:
        self._seen, self._spread = tuple(seen), spread
        seconds = numpy.array([one.seconds for one in self._seen])
        measured = numpy.array([one.log for one in self._seen]) + numpy.log(seconds.sum(1))
        between = numpy.array([self._with(one.traits) for one in self._seen])
        logs, pace, last = numpy.zeros(seconds.shape), 1.0, math.inf
        for _ in range(ROUNDS):
            parts = seconds * numpy.exp(logs)
            self._shares: Numbers = parts / parts.sum(1)[:, None]
            gram = numpy.einsum("ip,ijp,jp->ij", self._shares, between[..., :3], self._shares) + between[..., 3]
            self._gram: Numbers = gram
            off = measured - numpy.log(parts.sum(1)) + (self._shares * logs).sum(1)
            self._pull: Numbers = numpy.linalg.lstsq(gram, off, rcond=None)[0]
            change = numpy.array([self._from(own) for own in between]) - logs
            largest = float(numpy.abs(change).max())
            if largest < CONVERGED:
                break
            pace = pace if largest < PACE * last else PACE
            logs, last = logs + pace * change, largest

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
