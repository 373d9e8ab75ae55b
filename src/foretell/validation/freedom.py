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

from foretell.validation.in_view import Slot, in_view, with_reached
from foretell.validation.left_out import WORST, Prepared, bears_on, log_with
from foretell.validation.rows_left_out import as_shipped, times

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
    logs = numpy.array([log_with(one, {}, one.cluster) for one in runs])
    felt = numpy.array([[_felt(slot, one, log) for one, log in zip(runs, logs, strict=True)] for slot in slots])
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


def _felt(slot: Slot, one: Prepared, log: float) -> float:
    """By how much the logarithm of a prediction moves with that of a constant."""
    if not bears_on(slot, one):
        return 0.0
    by = 1 / NUDGE if times(slot, as_shipped(slot), NUDGE) == as_shipped(slot) else NUDGE
    value = times(slot, as_shipped(slot), by)
    if slot.kind == "kernels":
        moved = log_with(one, {}, with_reached(one.cluster, {slot: value}))
    else:
        moved = log_with(one, {slot.key: value}, one.cluster)
    return (log - moved) / math.log(by)
