"""The batch-size trade-off, measured: steps to a target over batch sizes, and the gradient noise scale.

McCandlish et al. 2018 (arXiv 1812.06162): steps to a loss are S = Smin (1 + Bnoise / B). Bnoise comes from two sides: a
fit of that law to the steps that were counted, and tr(S) / |G|^2 of the gradients of single samples on the way. Both
are what `foretell plan --batch auto --noise-scale` asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from foretell.errors import BadInput
from foretell.learning.vector import Vector
from foretell.virtual.problem import TrainingProblem
from foretell.virtual.simulate import Watch, unwatched

SINGLE = 128
"""Samples whose own gradients stand for all in the spread."""

FINE = 16
"""Looks at the loss lie a sixteenth of the steps apart: so far off a count of steps can be."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size: steps to the target with the rate that takes fewest; None where none gets there."""

    batch: int
    steps: int | None
    samples: int | None
    rate: float | None
    noise_scale: float | None  # tr(S) / |G|^2, the mean over the way


class BatchTradeOff(msgspec.Struct, frozen=True, kw_only=True):
    """The trade-off; the noise scale in samples."""

    learns: str
    target: float
    batches: tuple[Counted, ...]
    least_steps: float | None  # Smin; None, as the next two, where larger batches are needed to see the law
    least_samples: float | None  # Emin
    critical_batch: float | None  # Bnoise of the fit: steps and samples are both twice their least
    noise_scale: float  # Bnoise of the gradients

    def by_the_law(self, batch: float) -> float | None:
        """Steps, where the law fits."""
        if self.least_steps is None or self.critical_batch is None:
            return None
        return self.least_steps * (1 + self.critical_batch / batch)


def noise_scale(problem: TrainingProblem, weights: Vector, draws: np.random.Generator) -> float:
    """tr(S) / |G|^2 at these weights, from gradients of single samples and of all."""
    (whole,) = problem.gradients([weights], [np.arange(problem.samples)])
    rows = [draws.integers(problem.samples, size=1) for _ in range(min(SINGLE, problem.samples))]
    single = np.stack(problem.gradients([weights] * len(rows), rows)).astype(np.float64)
    spread = float(((single - whole) ** 2).sum(axis=1).mean())
    return spread / float((whole.astype(np.float64) ** 2).sum())


def measured(
    problem: TrainingProblem,
    batches: Sequence[int],
    rates: Sequence[float],
    target: float,
    most: int = 4000,
    seed: int = 0,
    watch: Watch = unwatched,
) -> BatchTradeOff:
    """Serial SGD with each batch and rate to the target, `most` steps at most."""
    found: list[Counted] = []
    for at, batch in enumerate(batches):
        watch(f"batches of {batch}", at / len(batches))
        found.append(_counted(problem, batch, rates, target, most, seed))
    reached = [one for one in found if one.steps is not None]
    if len(reached) < 2:
        raise BadInput(
            f"the loss {target:.3g} was reached with {len(reached)} of the batches",
            where="--target",
            fix="a higher --target, or other --rate",
        )
    law = _fit([(one.batch, one.steps or 0) for one in reached])
    scales = [one.noise_scale for one in reached if one.noise_scale is not None]
    return BatchTradeOff(
        learns=problem.name,
        target=target,
        batches=tuple(found),
        least_steps=law and law[0],
        least_samples=law and law[0] * law[1],
        critical_batch=law and law[1],
        noise_scale=float(np.median(scales)),
    )


def _counted(
    problem: TrainingProblem, batch: int, rates: Sequence[float], target: float, most: int, seed: int
) -> Counted:
    best: tuple[int, float, float] | None = None
    for rate in rates:
        run = _run(problem, batch, rate, target, most if best is None else best[0], seed)
        if run is not None and (best is None or run[0] < best[0]):
            best = (run[0], rate, run[1])
    if best is None:
        return Counted(batch=batch, steps=None, samples=None, rate=None, noise_scale=None)
    return Counted(batch=batch, steps=best[0], samples=best[0] * batch, rate=best[1], noise_scale=best[2])


def _run(
    problem: TrainingProblem, batch: int, rate: float, target: float, most: int, seed: int
) -> tuple[int, float] | None:
    """Steps to the target, and the mean noise scale on the way."""
    draws, weights = np.random.default_rng([seed, batch]), problem.start(seed)
    scales: list[float] = []
    for step in range(1, most + 1):
        if step == 1 or step & (step - 1) == 0:  # at powers of two: losses fall fastest at first
            scales.append(noise_scale(problem, weights, draws))
        (gradient,) = problem.gradients([weights], [draws.integers(problem.samples, size=batch)])
        weights = weights - rate * gradient
        if step % max(1, step // FINE) == 0:
            loss = problem.judged([weights]).loss
            if not math.isfinite(loss):
                return None
            if loss <= target:
                return step, float(np.exp(np.mean(np.log(scales))))
    return None


def _fit(points: Sequence[tuple[int, int]]) -> tuple[float, float] | None:
    """Smin and Bnoise of S = Smin (1 + Bnoise / B), by least squares of relative errors; a line in 1/B.

    None where even the largest batch gains in full: steps are not yet flat, and say nothing of where they will be.
    """
    inverse = np.array([1.0 / batch for batch, _ in points])
    steps = np.array([float(count) for _, count in points])
    rows = np.stack([1 / steps, inverse / steps], axis=1)
    least, slope = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)[0]
    if least <= 0:
        return None
    return float(least), float(max(slope, 0.0) / least)
