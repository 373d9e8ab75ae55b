"""Measured runs under constants that are tried: how far predictions are off, each found once.

Most sources leave the same constants, so that what one asks another asked before. What is asked together is found run
by run: the program of a run is made once, and only its prices again with other constants. `shared_out` deals the runs
to copies of this process, a model always to the same one.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from foretell.caches import allow
from foretell.errors import ForetellError
from foretell.forked_workers import ForkedWorkers
from foretell.hardware.cluster import Cluster
from foretell.oracle.predict import timed
from foretell.plan.setting import Setting
from foretell.validation.evaluate import timed_seconds
from foretell.validation.in_view import Chosen, changed, constants_without, slots_of, with_reached
from foretell.validation.study import MeasuredRun

BUDGET: Final = 500_000_000
"""Bytes by which caches of a copy may grow: the programs of its runs."""

Key: TypeAlias = tuple[Any, ...]


class Prepared(NamedTuple):
    """A run, who measured it, and the question that it answers."""

    source: str
    row: MeasuredRun
    setting: Setting
    cluster: Cluster

    @property
    def cell(self) -> tuple[str, str]:
        """Runs of one source and trainer."""
        return self.source, self.row.trainer

    @property
    def name(self) -> Key:
        """Two tables of one source may count their rows alike."""
        row = self.row
        return self.source, row.id, row.trainer, row.model, row.cluster, row.job, row.plan, row.step_seconds


class TriedRun(NamedTuple):
    """A run with constants of its trainer, and shares that units of its device reach."""

    run: Prepared
    constants: Mapping[str, Any]
    reached: Chosen

    @property
    def key(self) -> Key:
        """Equal where predictions are."""
        device = self.run.cluster.device
        reached = (both for both in self.reached.items() if both[0].owner in (device.name, device.architecture))
        return (*self.run.name, tuple(sorted(self.constants.items())), tuple(sorted(reached)))


def without(runs: Iterable[Prepared], source: str, chosen: Chosen) -> list[TriedRun]:
    """The runs as if a source had never been seen."""
    reached = {slot: chosen[slot] for slot in slots_of(source) if slot.kind == "kernels" and slot in chosen}

    @functools.cache
    def constants(name: str) -> dict[str, Any]:
        return constants_without(name, source, chosen)

    return [TriedRun(one, constants(one.setting.trainer.name), reached) for one in runs]


_LOGS: Final[dict[Key, float]] = {}

_SHARED: Final[list[_RunsByCopy]] = []


def log(one: TriedRun) -> float:
    """Logarithm of measured over predicted."""
    key = one.key
    if key not in _LOGS:
        _LOGS[key] = _log(one)
    return _LOGS[key]


def find(tried: Iterable[TriedRun]) -> None:
    """The logarithms of all of these, which are asked for afterwards."""
    asked = {key: one for one in tried if (key := one.key) not in _LOGS}
    logs = _SHARED[-1].logs(list(asked.values())) if _SHARED else map(_log_or_none, asked.values())
    _LOGS.update((key, found) for key, found in zip(asked, logs, strict=True) if found is not None)


def with_prices(runs: Sequence[Prepared]) -> list[Prepared]:
    """The runs that a program and its prices are written for."""
    tried = [TriedRun(one, {}, {}) for one in runs]
    find(tried)
    return [one for one, shipped in zip(runs, tried, strict=True) if shipped.key in _LOGS]


def _log_or_none(one: TriedRun) -> float | None:
    try:
        return _log(one)
    except ForetellError:
        return None  # `log` says why, where it is asked for


def _log(one: TriedRun) -> float:
    setting, row = one.run.setting, one.run.row
    setting = msgspec.structs.replace(setting, trainer=changed(setting.trainer, one.constants))
    found = timed(setting, with_reached(one.run.cluster, one.reached))
    return math.log(row.step_seconds / timed_seconds(found, row))


@contextmanager
def shared_out(runs: Sequence[Prepared], copies: int = 0) -> Generator[None]:
    """These runs are predicted by copies of this process: one for each core, or so many."""
    own = list({one.name: one for one in runs}.values())
    own.sort(key=lambda one: (one.row.trainer, one.row.model, one.setting.graph.batch))

    parent = os.getpid()

    def answer(asked: list[tuple[int, dict[str, Any], dict[Any, Any]]]) -> list[float | None]:
        if os.getpid() != parent:  # a copy has no other task
            allow(BUDGET)
        return [_log_or_none(TriedRun(own[at], constants, reached)) for at, constants, reached in asked]

    with ForkedWorkers(answer, copies) as workers:
        _SHARED.append(_RunsByCopy(workers, own))
        try:
            yield
        finally:
            _SHARED.pop()


class _RunsByCopy:
    """Copies of this process, and whose each run is: models of a trainer are dealt to one after the other."""

    def __init__(self, workers: ForkedWorkers, runs: Sequence[Prepared]) -> None:
        self.workers = workers
        self.places = {one.name: at for at, one in enumerate(runs)}
        models = dict.fromkeys((one.row.trainer, one.row.model) for one in runs)
        turns = {model: at % workers.count for at, model in enumerate(models)}
        self.turns = [turns[one.row.trainer, one.row.model] for one in runs]

    def logs(self, asked: Sequence[TriedRun]) -> list[float | None]:
        """In the order in which they are asked for."""
        places = [self.places[one.run.name] for one in asked]
        order = sorted(range(len(asked)), key=places.__getitem__)
        own = [[at for at in order if self.turns[places[at]] == turn] for turn in range(self.workers.count)]
        questions = [[(places[at], dict(asked[at].constants), dict(asked[at].reached)) for at in one] for one in own]
        found: list[float | None] = [None] * len(asked)
        for ats, logs in zip(own, self.workers.each_of(questions), strict=True):
            for at, value in zip(ats, logs, strict=True):
                found[at] = value
        return found
