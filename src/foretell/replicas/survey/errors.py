"""How far the prediction of the survey is from its numbers: by curve, and by speed-up."""

from __future__ import annotations

import math
from statistics import fmean, median

import msgspec

from foretell.bench.row import BenchRow
from foretell.hardware import catalog
from foretell.plan.policies.precision import Precision
from foretell.plan.text import parse
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.replicas.survey import predicted, published
from foretell.replicas.survey.causes import causes
from foretell.replicas.survey.predicted import SurveyCase, asked, cluster_of, setting_of
from foretell.replicas.survey.published import Counts, Label, PublishedCurve
from foretell.replicas.survey.workload import TEXT
from foretell.runtime.expected import expected

WITHIN = 0.10
"""What is aimed at for the speed-ups of data and intra-layer parallelism."""

AIMED = ("ddp", "zero", "axonn", "lbann", "megatron-data", "megatron-intra")
"""Frameworks whose speed-ups are to be within it; those of pipelines are to be explained."""


class CurveError(msgspec.Struct, frozen=True, kw_only=True):
    """One curve: seconds of an epoch by GPUs."""

    machine: str
    model: str
    framework: str
    gpus: tuple[int, ...]  # that both have
    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    errors: tuple[float, ...]  # predicted over measured, less one
    mean: float  # of their absolute values
    bias: float  # mean of the errors with their sign
    median: float  # the error in the middle
    shape: float  # mean absolute error of the speed-ups over one GPU: what is left without a constant factor


class SpeedupError(msgspec.Struct, frozen=True, kw_only=True):
    """A speed-up that the survey prints."""

    machine: str
    model: str
    framework: str
    gpus: int
    predicted: float
    measured: float
    error: float
    aimed: bool  # to be within a tenth
    within: bool
    causes: dict[str, float]  # times as long a step takes because of each
    causes_alone: dict[str, float]  # the same on one GPU
    impossible: str  # why the survey's row cannot be, by the figures of its machine; empty: it can


def curves() -> tuple[CurveError, ...]:
    return tuple(_curve(curve, counts) for curve, counts in published.epochs().items())


def _curve(curve: PublishedCurve, counts: Counts) -> CurveError:
    rows = {gpus: predicted.row(SurveyCase(curve, gpus)) for gpus in counts}
    gpus = tuple(one for one in counts if rows[one].ok)
    ours, theirs = [rows[one].epoch_seconds for one in gpus], [counts[one] for one in gpus]
    errors = tuple(our / their - 1 for our, their in zip(ours, theirs, strict=True))
    shape = [(ours[0] / our) / (theirs[0] / their) - 1 for our, their in zip(ours[1:], theirs[1:], strict=True)]
    return CurveError(
        machine=curve.machine,
        model=curve.model,
        framework=curve.framework,
        gpus=gpus,
        predicted=tuple(ours),
        measured=tuple(theirs),
        errors=errors,
        mean=fmean(map(abs, errors)),
        bias=fmean(errors),
        median=median(errors),
        shape=fmean(map(abs, shape)) if shape else 0.0,
    )


def speedups() -> tuple[SpeedupError, ...]:
    return tuple(map(_speedup, published.labels()))


def _speedup(label: Label) -> SpeedupError:
    case, alone = SurveyCase(label.curve, label.gpus), SurveyCase(label.curve, 1)
    ours = predicted.row(alone).epoch_seconds / predicted.row(case).epoch_seconds
    error = ours / label.speedup - 1
    return SpeedupError(
        machine=label.curve.machine,
        model=label.curve.model,
        framework=label.curve.framework,
        gpus=label.gpus,
        predicted=ours,
        measured=label.speedup,
        error=error,
        aimed=label.curve.framework in AIMED,
        within=abs(error) <= WITHIN,
        causes={one.name: one.factor for one in causes(case)},
        causes_alone={one.name: one.factor for one in causes(alone)},
        impossible=impossible(case),
    )


# --- what the machines, as described, cannot do -----------------------------------------------------------


def impossible(case: SurveyCase) -> str:
    """Why a row takes less than its machine needs, if its work is what the survey says: peaks, or links."""
    counts = published.epochs().get(case.curve, {})
    found = asked(case).prediction
    if found is None or case.gpus not in counts or 1 not in counts:
        return ""
    return _above_peak(case, found.model_flops) or _above_links(case)


def impossible_rows() -> dict[str, str]:
    """All of them, by name."""
    asked_of = ((curve, gpus) for curve, counts in published.epochs().items() for gpus in counts)
    told = {
        f"{curve.framework}, {curve.model}, {gpus} of {curve.machine}": impossible(SurveyCase(curve, gpus))
        for curve, gpus in asked_of
    }
    return {name: why for name, why in told.items() if why}


def _above_peak(case: SurveyCase, flops: float) -> str:
    """Products of GPT2-medium only: convolutions have algorithms with fewer multiplications than are counted."""
    row = _theirs(case)
    form = parse(row.plan).policy(Precision).format
    peak = catalog.cluster(case.curve.machine).device.matrix_rate(form.other_kernels)
    needed = flops / row.step_seconds / case.gpus
    if case.curve.model != TEXT or needed <= peak:
        return ""
    return f"needs {needed / 1e12:.3g} Tflop/s of a GPU whose peak in {form.other_kernels} is {peak / 1e12:.3g}"


def _above_links(case: SurveyCase) -> str:
    """Of intra-layer parallelism, whose ranks have each as much to do as one alone, but for a share of the optimizer:
    what a step takes longer than on one GPU is all that its messages can take."""
    if not case.curve.framework.endswith(INTRA) or case.gpus == 1:
        return ""
    left = _longer(case) + _less_to_update(case)
    sent, rate, step = _summed_bytes(case), narrowest(case), _theirs(case).step_seconds
    if sent <= left * rate:
        return ""
    longer = f", more than the whole step of {step * 1e3:.3g} ms" if sent > step * rate else ""
    return (
        f"leaves {left * 1e3:.3g} ms of a step for sums of {sent / 1e9:.3g} GB that take {sent / rate * 1e3:.3g} ms"
        f"{longer}, whatever the algorithm, over links that carry {rate / 1e9:.3g} GB/s"
        f"{_beside_data(case, sent / left)}"
    )


INTRA = "-intra"


def _beside_data(case: SurveyCase, rate: float) -> str:
    """The same sums, of gradients, in the survey's own row of the same framework under data parallelism."""
    data = SurveyCase(case.curve._replace(framework=case.curve.framework.replace(INTRA, "-data")), case.gpus)
    if case.gpus not in published.epochs().get(data.curve, {}):
        return ""
    times = rate / (_summed_bytes(data) / _longer(data))
    return f"; that is {times:.2g} times the rate at which its data parallelism sums gradients on as many GPUs"


def _longer(case: SurveyCase) -> float:
    """Seconds that a step takes longer than on one GPU."""
    return _theirs(case).step_seconds - _theirs(SurveyCase(case.curve, 1)).step_seconds


def _less_to_update(case: SurveyCase) -> float:
    """Seconds that a rank's optimizer takes less than that of one alone: it has a share of the weights."""
    own, alone = asked(case).prediction, asked(SurveyCase(case.curve, 1)).prediction
    assert own is not None and alone is not None
    return max(0.0, alone.breakdown.get("optimizer", 0.0) - own.breakdown.get("optimizer", 0.0))


def _summed_bytes(case: SurveyCase) -> float:
    """Bytes of all tensors that are summed over the ranks in a step. A sum over two halves of them needs the whole
    tensor to go each way, by any algorithm."""
    return sum(one.payload * one.count for one in expected(expand(lower(setting_of(case)))) if one.ranks == case.gpus)


def narrowest(case: SurveyCase) -> float:
    """Bytes a second, each way, that software gets between a part of the outermost level that ranks cross and the
    others."""
    levels = cluster_of(case).levels
    top = max(at for at, level in enumerate(levels) if level.size > 1)
    level, inside = levels[top], math.prod(one.size for one in levels[:top])
    return level.link.bandwidth * level.link.efficiency["ring"] * (level.ports if level.link.per_port else inside)


def _theirs(case: SurveyCase) -> BenchRow:
    return next(
        row for row in predicted.measured() if (row.device, row.pair, row.engine, row.ranks) == (*case.curve, case.gpus)
    )
