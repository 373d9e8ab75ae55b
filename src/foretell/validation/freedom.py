"""How many of the constants measured runs really determine: effective degrees of freedom.

Before runs are seen each constant may be a factor of two off, either way (`PRIOR`). Runs say something of it as far as
they feel it, beside an error of their own. A direction of constants that runs pin down counts one, one that they do
not feel counts none: the sum of l / (l + a) over the eigenvalues l of what runs say, a of what was known before (MacKay
1992, "Bayesian interpolation"; the trace of the hat matrix: Hastie, Tibshirani, Friedman, 7.6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy

from foretell.validation.in_view import Slot, in_view
from foretell.validation.left_out import WORST, bears_on
from foretell.validation.rows_left_out import as_shipped, times
from foretell.validation.tried import Prepared, TriedRun, find, log

PRIOR: Final = math.log(2.0)

NUDGE: Final = 2 ** (1 / 8)


class Freedom(msgspec.Struct, frozen=True):
    """Constants that are numbers, and how many of them runs determine."""

    constants: int
    felt: int  # of them, that some run feels
    effective: float
    runs: int


def effective_freedom(runs: Sequence[Prepared]) -> Freedom:
    """Of all constants that were chosen with scored runs in view; words and truths are no numbers."""
    slots = [slot for slot in sorted(in_view()) if times(slot, as_shipped(slot), NUDGE) != as_shipped(slot)]
    slots += [slot for slot in sorted(in_view()) if slot not in slots and _is_share_of_all(slot)]
    find(tried for one in runs for tried in (TriedRun(one, {}, {}), *(_nudged(slot, one)[0] for slot in slots)))
    logs = numpy.array([log(TriedRun(one, {}, {})) for one in runs])
    felt = numpy.array([[_felt(slot, one, own) for one, own in zip(runs, logs, strict=True)] for slot in slots])
    error = statistics.fmean(min(WORST, abs(log)) ** 2 for log in logs.tolist())
    told = numpy.linalg.eigvalsh(felt @ felt.T / error)
    return Freedom(
        constants=len(slots),
        felt=int((abs(felt) > 1e-6).any(axis=1).sum()),
        effective=float((told / (told + PRIOR**-2)).sum()),
        runs=len(runs),
    )


def _is_share_of_all(slot: Slot) -> bool:
    """A share that is all: it can only be less."""
    return times(slot, as_shipped(slot), 1 / NUDGE) != as_shipped(slot)


def _felt(slot: Slot, one: Prepared, own: float) -> float:
    """By how much the logarithm of a prediction moves with that of a constant."""
    nudged, by = _nudged(slot, one)
    return (own - log(nudged)) / math.log(by)


def _nudged(slot: Slot, one: Prepared) -> tuple[TriedRun, float]:
    """A run with a little more of a constant that it is predicted with, or less of a share that is all; how much."""
    by = 1 / NUDGE if times(slot, as_shipped(slot), NUDGE) == as_shipped(slot) else NUDGE
    value = times(slot, as_shipped(slot), by)
    if not bears_on(slot, one):
        return TriedRun(one, {}, {}), by
    return (TriedRun(one, {}, {slot: value}) if slot.kind == "kernels" else TriedRun(one, {slot.key: value}, {})), by
