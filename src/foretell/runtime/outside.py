"""What of a run is no surprise, and what is: phases and ranks outside the band of their prediction, by name.

A phase has the band of the whole prediction (`oracle/bands.py`). A rank is compared with its peers, which do the same
work: one that is slower is a straggler, whatever was predicted. Where computing is as foretold and messages are not,
the links are to blame, as the oracle paper concludes of its own runs (Kahira et al. 2021).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import msgspec

from foretell.oracle.predict import Prediction
from foretell.runtime.measure import Measurement

SMALL: Final = 0.03
"""Share of a step below which a difference is not told."""

STRAGGLES: Final = 1.25
"""Times that its peers take, from which on a rank is told: ranks of a quiet machine lie within a tenth."""

OWN: Final = 0.9
"""Share of its computing time in which a rank's thread had its core, below which other programs are told."""

APART: Final = 2.0
"""The ninth of ten steps over the first, from which on steps are said to lie far apart."""

COMPUTING: Final = ("forward", "backward", "optimizer")


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """One thing outside its band: seconds that were measured, and between which they were expected."""

    kind: str  # step, phase, congestion, straggler, other programs, spread
    name: str  # of the phase, or "rank 3"
    seconds: float
    low: float
    high: float
    why: str


def outside(predicted: Prediction, measured: Measurement, places: Sequence[int]) -> tuple[Outside, ...]:
    """All that is outside; `places` are the ranks' places on the pipeline."""
    found = [*_machine(measured), *_stragglers(measured, places), *_phases(predicted, measured), *_spread(measured)]
    return tuple(found)


def _phases(predicted: Prediction, measured: Measurement) -> Iterator[Outside]:
    """The step and its phases against the band of the prediction."""
    low, high = predicted.interval
    band = high / predicted.step_seconds
    step = measured.step_seconds
    if not low <= step <= high:
        yield _told("step", "step", step, low, high, "the step as a whole")
    floor = SMALL * step
    parts = {
        name: (seconds, predicted.breakdown.get(name, 0.0) / band, predicted.breakdown.get(name, 0.0) * band)
        for name, seconds in measured.breakdown.items()
        if name != "other"
    }
    wrong = {name: part for name, part in parts.items() if not part[1] - floor <= part[0] <= part[2] + floor}
    computes = not any(name in COMPUTING for name in wrong)
    for name, (seconds, least, most) in wrong.items():
        if name.startswith("exposed.") and seconds > most:
            why = f"messages along {name.partition('.')[2]} take longer than over free links"
            kind = "congestion" if computes else "phase"
            yield _told(kind, name, seconds, least, most, why if computes else f"{why}, and ranks compute longer too")
        else:
            yield _told("phase", name, seconds, least, most, f"{name} takes {_times(seconds, least, most)}")


def _times(seconds: float, low: float, high: float) -> str:
    if high <= 0.0:
        return "time, and none was predicted"
    middle = (low * high) ** 0.5
    return f"{seconds / middle:.2g} times what was predicted"


def _stragglers(measured: Measurement, places: Sequence[int]) -> Iterator[Outside]:
    """Ranks that compute longer than those that do the same work."""
    peers: dict[int, list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        peers[place].append(rank)
    times = measured.busy_by_rank or measured.by_rank
    for ranks in (ranks for ranks in peers.values() if len(ranks) > 1):
        for name in COMPUTING:
            own = times.get(name, [])
            for rank in ranks if own else ():
                usual = median(own[peer] for peer in ranks if peer != rank)
                if own[rank] > STRAGGLES * usual and own[rank] - usual > SMALL * measured.step_seconds:
                    why = f"rank {rank} takes {own[rank] / usual:.2g} times as long as its peers in {name}"
                    yield _told("straggler", f"rank {rank}", own[rank], usual / STRAGGLES, usual * STRAGGLES, why)


def _machine(measured: Measurement) -> Iterator[Outside]:
    """Ranks whose core other programs used while they computed."""
    for rank in range(len(next(iter(measured.busy_by_rank.values()), ()))):
        wall = sum(measured.by_rank[name][rank] for name in COMPUTING if name in measured.by_rank)
        busy = sum(measured.busy_by_rank[name][rank] for name in COMPUTING if name in measured.busy_by_rank)
        if 0 < busy < OWN * wall and wall - busy > SMALL * measured.step_seconds:
            why = f"rank {rank} had its core for {busy / wall:.0%} of its computing time: other programs run here"
            yield _told("other programs", f"rank {rank}", wall, busy, busy / OWN, why)


def _spread(measured: Measurement) -> Iterator[Outside]:
    low, high = measured.samples.p10, measured.samples.p90
    if low > 0 and high > APART * low:
        one = "step" if measured.samples.of == 1 else "round"
        why = f"one {one} in ten takes {high / low:.2g} times as long as one in ten others"
        yield _told("spread", "step", high, low, low * APART, why)


def _told(kind: str, name: str, seconds: float, low: float, high: float, why: str) -> Outside:
    return Outside(kind=kind, name=name, seconds=seconds, low=low, high=high, why=why)
