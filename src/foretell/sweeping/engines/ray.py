"""Cells answered on a Ray cluster: the one that RAY_ADDRESS names, or one that is started on this machine.

Ray finds foretell as it is installed on each node; files that models and clusters are read from must be there too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from foretell import trust
from foretell.errors import MissingExtra
from foretell.processes import same_signals
from foretell.sweeping.cell import BROKEN, SweepCell, SweepRow, row

Done: TypeAlias = tuple[int, SweepRow]


def answers(cells: Sequence[SweepCell], jobs: int) -> Generator[Done]:
    """Each cell's place and answer as they are done. `jobs` limits how many are worked on at a time; 0: no limit.

    Ray gives a task of one core one thread.
    """
    ray = _ray()
    own = not ray.is_initialized()
    if own:
        with same_signals():  # Ray takes SIGTERM for itself
            ray.init(log_to_driver=False, include_dashboard=False, **_reached(jobs))
    try:
        yield from _gathered(ray, cells, jobs or len(cells))
    finally:
        if own:
            ray.shutdown()


def _gathered(ray: Any, cells: Sequence[SweepCell], most: int) -> Iterator[Done]:
    task = ray.remote(num_cpus=1, max_retries=2)(_answered)
    waiting = list(enumerate(cells))[::-1]
    running: dict[Any, int] = {}
    while waiting or running:
        while waiting and len(running) < most:
            place, cell = waiting.pop()
            running[task.remote(msgspec.json.encode(cell), trust.written())] = place
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        place = running.pop(done)
        yield place, _reply(ray, done, cells[place])


def _reply(ray: Any, done: Any, cell: SweepCell) -> SweepRow:
    try:
        return msgspec.json.decode(ray.get(done), type=SweepRow)
    except ray.exceptions.RayError as problem:  # a node or a process went away, more often than it is tried again
        first = str(problem).splitlines()[0]
        return row(cell, BROKEN, reason=f"{type(problem).__name__}: {first}")


def _answered(cell: bytes, written: tuple[str, ...]) -> bytes:
    """What runs on a node; code that the person named may run there too."""
    trust.trust(*written)
    from foretell.sweeping.answering import answered

    return msgspec.json.encode(answered(msgspec.json.decode(cell, type=SweepCell)))


def _reached(jobs: int) -> dict[str, Any]:
    """The cluster that is named, whose cores are its own affair; else one of so many cores on this machine.

    Not whatever cluster `ray start` once left here: Ray would join it, and refuse a number of cores.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    return {"address": address} if address else {"address": "local", "num_cpus": jobs or None}


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("--engine ray needs Ray", fix="pip install 'foretell[ray]', or --engine processes") from None
