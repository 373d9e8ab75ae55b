"""What each constant is worth: errors with it, and with that of the trainer below in its place.

A constant that was chosen on runs must earn its keep where it was not: on sources that did not see it, or, chosen again
on the others, on each of those that did. Where one source alone uses a trainer there is no such run, and what is left
is its worth on the runs that it was chosen on, which a single number among many runs cannot inflate by much.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from foretell.plan.trainer import trainer
from foretell.validation.in_view import TOGETHER, Slot, chain, in_view, own
from foretell.validation.left_out import bears_on, chosen_again
from foretell.validation.tried import Prepared, TriedRun, find, log, without

RUNS: Final = 60
"""Of each source and trainer, evenly taken."""

BY_MEMORY: Final = ("memory.",)
"""Constants that no time feels."""

FELT: Final = 1e-3
"""A prediction that moves by less does not feel a constant."""


class Ablated(msgspec.Struct, frozen=True):
    """A constant, and the mean absolute error over sources less that with it, as fractions."""

    owner: str
    key: str
    value: str
    below: str  # what takes its place
    seen: float  # on the sources that it was chosen on
    unseen: float | None  # on sources that did not see it; None: there are none
    felt: bool  # whether any of these runs is predicted otherwise without it

    @property
    def stays(self) -> bool:
        """Whether predictions are worse without it, where that can be told."""
        return (self.seen if self.unseen is None else self.unseen) > 0


def ablated(runs: Sequence[Prepared]) -> Iterator[Ablated]:
    """Every constant of a trainer that has another one below it and that times may feel."""
    slots = sorted(in_view().items())
    find(one for run in runs for slot, _ in slots if bears_on(slot, run) for one in _asked(run, _below(slot)))
    for slot, sources in slots:
        below = _below(slot)
        bearing = [one for one in runs if below and bears_on(slot, one)]
        if not bearing:
            continue
        told = [one for one in bearing if one.source in sources]
        fresh = [one for one in bearing if one.source not in sources or len(sources) > 1]
        yield Ablated(
            owner=slot.owner,
            key=slot.key,
            value=str(trainer(slot.owner).constant(slot.key)),
            below=str(below[slot.key]),
            seen=_worth(told, _log, below),
            unseen=_worth(fresh, _unseen_log, below) if fresh else None,
            felt=any(abs(_log(one, {}) - _log(one, below)) > FELT for one in bearing),
        )


def _asked(one: Prepared, below: dict[str, Any]) -> Iterator[TriedRun]:
    """Where a constant has another one below it."""
    for constants in ({}, below) if below else ():
        yield TriedRun(one, constants, {})
        yield _unseen(one, constants)


def _below(slot: Slot) -> dict[str, Any]:
    """What takes a constant's place, and that of those that go with it; nothing where there is none to ask for."""
    if slot.kind != "trainers" or slot.key.startswith(BY_MEMORY) or slot.key in TOGETHER[1:]:
        return {}
    keys = TOGETHER if slot.key in TOGETHER else (slot.key,)
    if not any(slot.key in own(level.name) for level in chain(slot.owner)[1:]):
        return {}
    lower = trainer(trainer(slot.owner).based_on)
    return {key: lower.constant(key) for key in keys}


def _log(one: Prepared, constants: dict[str, Any]) -> float:
    return log(TriedRun(one, constants, {}))


def _unseen_log(one: Prepared, constants: dict[str, Any]) -> float:
    """As if the run's own source had never been seen."""
    return log(_unseen(one, constants))


def _unseen(one: Prepared, constants: dict[str, Any]) -> TriedRun:
    (left,) = without([one], one.source, chosen_again().get(one.source, {}))
    return left._replace(constants={**left.constants, **constants})


def _worth(runs: Sequence[Prepared], log: Callable[[Prepared, dict[str, Any]], float], below: dict[str, Any]) -> float:
    """How much larger the error is with the constant from below; every source has the same weight."""
    sources: dict[str, list[float]] = {}
    for one in runs:
        sources.setdefault(one.source, []).append(_error(log(one, below)) - _error(log(one, {})))
    return statistics.fmean(map(statistics.fmean, sources.values())) if sources else 0.0


def _error(log: float) -> float:
    return abs(math.exp(-log) - 1)
