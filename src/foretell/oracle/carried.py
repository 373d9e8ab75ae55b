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
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from foretell.plan.text import parse

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction
    from foretell.plan.plan import Plan

COMPUTING, MESSAGES, HOST = range(3)

HOST_PARTS: Final = ("host", "paging", "other", "input")

HALVED: Final = 2.0
"""Doublings of the number of ranks after which the effect of the scale is shared by 1/e."""


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


def left_open(between: Sequence[Sequence[float]], own: float, seconds: Sequence[float]) -> float:
    """The standard deviation that is left of a step's logarithm, by the shares of its parts."""
    shares = [part / sum(seconds) for part in seconds]
    parts = zip(shares, between, strict=True)
    told = sum(one * sum(map(operator.mul, row, shares)) for one, row in parts)
    return math.sqrt(max(0.0, told + own))


def alike_deviation(spread: EffectSpread) -> tuple[float, float]:
    """What a measured run leaves open of another one of its model, device and scale, where both only compute; and how
    far it is off itself, as expected."""
    shared = spread.device + spread.model + spread.scale + spread.axes
    own = shared + spread.run
    return (math.sqrt(own - shared**2 / own), math.sqrt(own)) if own else (0.0, 0.0)
