"""Why one algorithm is there before another: the samples that it needs, times the time that it needs for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from foretell.virtual.outcome import Outcome

CLEAR: Final = 1.1
"""A factor from which a cause is told."""

BUSY: Final = 0.5
"""The share of the time from which a port, or waiting, is told as what takes the time."""


class VersusFastest(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm beside the fastest: times as long = times the samples x times the time of each."""

    algorithm: str
    times: float | None  # None: it does not get there
    samples: float | None
    pace: float | None  # seconds of a sample, of all workers together
    because: str


def beside_fastest(runs: Sequence[Outcome]) -> tuple[VersusFastest, ...]:
    """All but the first of runs in the order of their times; nobody, where not even that one got there."""
    first = runs[0]
    if not first.virtual_seconds_to_target or not first.samples_to_target:
        return ()
    return tuple(_beside(run, first) for run in runs[1:])


def _beside(run: Outcome, first: Outcome) -> VersusFastest:
    reached, samples = run.virtual_seconds_to_target, run.samples_to_target
    assert first.virtual_seconds_to_target and first.samples_to_target
    if reached is None or not samples:
        because = f"{run.ended} with a loss of {run.loss:.3g} after {run.samples:,} samples"
        return VersusFastest(algorithm=run.algorithm, times=None, samples=None, pace=None, because=because)
    times, more = reached / first.virtual_seconds_to_target, samples / first.samples_to_target
    because = ", ".join([*_of_samples(run, more), *_of_pace(run, times / more)]) or _unclear(times, more)
    return VersusFastest(algorithm=run.algorithm, times=times, samples=more, pace=times / more, because=because)


def _unclear(times: float, more: float) -> str:
    if times < CLEAR:
        return "about as fast"
    return "it needs more samples" if more * more > times else "each sample takes longer"


def _of_samples(run: Outcome, more: float) -> Iterator[str]:
    """What makes samples worth less: other weights than those that a gradient is for."""
    if more < CLEAR:
        return
    if not run.staleness:
        yield "copies drift apart"
    elif run.staleness["mean"] >= 1:
        yield f"gradients are {run.staleness['mean']:.3g} updates old"


def _of_pace(run: Outcome, slower: float) -> Iterator[str]:
    if slower < CLEAR:
        return
    if run.link_utilisation >= BUSY:
        yield f"a port is busy {run.link_utilisation:.0%} of the time"
    elif run.idle >= BUSY:
        yield f"workers wait {run.idle:.0%} of the time"
