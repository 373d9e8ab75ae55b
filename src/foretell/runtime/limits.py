"""What limited a run that was measured: the rules that `predict` has (Kahira et al. 2021, table 6), on what was seen.

Shares are those of the measured step. What no clock shows is known from the plan, and is taken from the prediction: how
many ranks an axis can have, and which part of the computing others do too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from foretell.oracle.causes import Causes
from foretell.oracle.explain import Bottleneck, bottlenecks, of_forward
from foretell.oracle.predict import Prediction
from foretell.runtime.measure import Measurement
from foretell.runtime.outside import COMPUTING, Outside

OF_THE_PLAN = "number of ranks"
TWICE = "computation redundancy"


def limits(
    predicted: Prediction, measured: Measurement, places: Sequence[int], outside: Iterable[Outside]
) -> tuple[Bottleneck, ...]:
    """The rules that fire for a measurement, largest share first; `places` are the ranks' places on the pipeline."""
    imbalance, unevenness = _imbalance(measured, places)
    congestion, slowdown = _congestion(predicted, outside)
    twice = _twice(predicted) * _computing(measured.breakdown)
    seen = Causes(congestion=congestion, slowdown=slowdown, imbalance=imbalance, unevenness=unevenness, redundant=twice)
    told = {name: seconds for name, seconds in measured.breakdown.items() if name != "other"}  # which nobody saw
    fired = bottlenecks(told, measured.step_seconds, measured.memory, predicted.capacity, seen)
    fired = map(of_forward, fired) if predicted.forward else fired
    planned = (one for one in predicted.bottlenecks if one.name == OF_THE_PLAN)
    return (*fired, *planned)


def _twice(predicted: Prediction) -> float:
    """The part of its computing that a rank does though another one does it too."""
    share = sum(one.share for one in predicted.bottlenecks if one.name == TWICE)
    return share * predicted.step_seconds / _computing(predicted.breakdown) if share else 0.0


def _computing(breakdown: Mapping[str, float]) -> float:
    return sum(breakdown.get(name, 0.0) for name in COMPUTING)


def _imbalance(measured: Measurement, places: Sequence[int]) -> tuple[float, float]:
    """How much longer than the mean the stage that computes longest does, and its work over the mean."""
    times = measured.busy_by_rank or measured.by_rank
    work: dict[int, float] = defaultdict(float)
    for rank, place in enumerate(places):
        own = sum(times[name][rank] for name in COMPUTING if name in times)
        work[place] = max(work[place], own)
    mean = math.fsum(work.values()) / len(work)
    return max(work.values()) - mean, max(work.values()) / mean if mean else 1.0


def _congestion(predicted: Prediction, outside: Iterable[Outside]) -> tuple[float, float]:
    """Seconds that messages took longer than over free links, and the most delayed axis's times."""
    late = [(one.seconds, predicted.breakdown.get(one.name, 0.0)) for one in outside if one.kind == "congestion"]
    return sum(took - said for took, said in late), max((took / said for took, said in late if said), default=1.0)
