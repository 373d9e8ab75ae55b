"""All questions of a comparison, answered one after the other: engines x pairs x ranks x seeds.

Those answered before are taken from the folder. A row is kept as soon as it is known, so a comparison that is killed
goes on where it was.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from foretell.bench import engine, pair, study
from foretell.bench.group import REFERENCE
from foretell.bench.measuring import LONGEST_SECONDS, Starter, measured
from foretell.bench.question import BenchQuestion
from foretell.bench.row import ABSENT, FAILED, BenchRow
from foretell.bench.study import About
from foretell.hardware import this_machine
from foretell.version import __version__

Told: TypeAlias = Callable[[int, int, int, str], None]
"""Called with the rows done, those of them that were kept from before, all of them, and what comes next."""


class BenchMatrix(NamedTuple):
    """What is compared. Engines outermost, so that one process starts the ranks of many rows."""

    engines: Sequence[str]
    pairs: Sequence[str]
    ranks: Sequence[int]
    seeds: Sequence[int] = (0,)
    alike: dict[str, Any] = {}  # noqa: RUF012 (never changed) what every question has in common

    def questions(self) -> list[BenchQuestion]:
        """Names that nobody knows are refused here, before anything runs."""
        for name in self.engines:
            engine.engine(name)
        for name in self.pairs:
            pair.pair(name)
        return [
            BenchQuestion(
                engine=one.replace("-", "_"), pair=two.replace("-", "_"), ranks=ranks, seed=seed, **self.alike
            )
            for one in self.engines
            for two in self.pairs
            for ranks in self.ranks
            for seed in self.seeds
        ]


LEAST_SECONDS = 30.0
"""Of a row that begins, however little is left: processes must start."""

FAIR_SECONDS = 120.0
"""In which a row should end: one that had less and did not is no failure."""

QUICK_MINUTES = 9.5
"""Of a quick comparison, whatever the machine: what does not fit is left for another time."""


def quick() -> list[BenchQuestion]:
    """A comparison of minutes: every engine on two ranks with three seeds, and one rank to compare them with."""
    engines = [name for name in engine.names() if engine.engine(name).least <= 2]
    pairs = ("image", "language")
    found = BenchMatrix(engines, pairs, (2,), (0, 1, 2)).questions()
    alone = BenchMatrix([REFERENCE], pairs, (1,), (0, 1, 2)).questions()
    return sorted([*alone, *found], key=_turn)


def _turn(question: BenchQuestion) -> tuple[int, int, bool]:
    """When a row has its turn, so that a slow machine has fewer seeds, not fewer engines.

    One seed of every engine comes first. More seeds are for what is said about learning, so those come next that learn
    in ways of their own: the reference, and what is stale. All others have the reference's losses. Ours are before
    those of other frameworks, which take longer to start.
    """
    asked = question.engine_asked
    own = question.engine == REFERENCE or not asked.synchronous
    return (0 if question.seed == 0 else 1 if own else 2), question.seed, bool(asked.package)


def compare(
    questions: Sequence[BenchQuestion],
    folder: Path,
    command: str,
    told: Told | None = None,
    again: bool = False,
    seconds: float = math.inf,
    by: Starter | None = None,
) -> Iterator[BenchRow]:
    """The row of each question, as they become known; `again`: also of those that failed before.

    No row begins that, as long as the longest of its engine, would end after so many seconds; none gets more than are
    left. Whoever is named `by` starts the ranks, and goes on after this.
    """
    until = time.monotonic() + seconds
    study.begin(folder, about(command, by.where.hosts if by else 1))
    known = {print_: row for print_, row in study.kept(folder).items() if _lasts(row, again)}
    kept = sum(question.fingerprint in known for question in questions)
    done = kept
    tell = told or _untold
    yield from (known[one.fingerprint] for one in questions if one.fingerprint in known)
    left = [one for one in questions if one.fingerprint not in known]
    pace = RowPace(known.values())
    with nullcontext(by) if by else Starter() as starter:
        for question in left:
            now = time.monotonic()
            if now + pace.expected(question.engine) > until:
                continue
            tell(done, kept, len(questions), f"{question.engine} on {question.pair}, {question.ranks} ranks")
            allowed = min(LONGEST_SECONDS, max(LEAST_SECONDS, until - now))
            row = measured(question, starter, allowed)
            if _cut_short(row, allowed):
                return
            study.keep(folder, row)
            done += 1
            pace.took(question.engine, time.monotonic() - now)
            yield row


class RowPace:
    """How long rows take, by engine."""

    def __init__(self, before: Iterable[BenchRow]) -> None:
        self._longest: dict[str, float] = {}
        for row in before:
            self.took(row.engine, row.wall_seconds)

    def took(self, engine: str, seconds: float) -> None:
        self._longest[engine] = max(seconds, self._longest.get(engine, 0.0))

    def expected(self, engine: str) -> float:
        """As long as the longest of the engine; of one that nobody has seen, as the longest of all."""
        return self._longest.get(engine, max(self._longest.values(), default=0.0))


def _cut_short(row: BenchRow, allowed: float) -> bool:
    """Whether it says nothing that a row did not end: it had no fair time, and is begun again another time."""
    return row.status == FAILED and allowed < FAIR_SECONDS and row.wall_seconds >= allowed


def _untold(done: int, kept: int, total: int, now: str) -> None:
    """Nobody watches."""


def _lasts(row: BenchRow, again: bool) -> bool:
    """What is not installed may be by now, and costs nothing to ask again."""
    return row.status != ABSENT and not (again and row.status == FAILED)


def about(command: str, hosts: int = 1) -> About:
    """Of a study that begins now."""
    cluster, found = this_machine.processor(), this_machine.machine().cluster
    gpus = "" if found.device.is_processor else f"{found.ranks} x {found.device.title}, "
    return About(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        foretell=__version__,
        machine=f"{gpus}{cluster.device.title}, Python {platform.python_version()}",
        cores=cluster.ranks_per_node,
        hosts=hosts,
    )
