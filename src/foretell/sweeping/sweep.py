"""A sweep: its cells in their order, those answered before taken from a folder, the others answered by an engine.

The answer of a cell does not depend on the others, on the engine or on the number of processes, and lines stand in the
order of the cells. Each answer is a record, written whole as soon as it is known: a sweep that is killed goes on from
there when it is asked again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from foretell.errors import BadInput, ForetellError
from foretell.files import shown
from foretell.hardware import catalog
from foretell.oracle.calibrations import NONE, device_of, file_of
from foretell.records import store
from foretell.records.record import record
from foretell.registry import OpenSet
from foretell.summary import SHOWN, Summarized
from foretell.sweeping.answering import ANSWERS
from foretell.sweeping.cell import LASTING, MISSING, OK, SweepCell, SweepRow, row
from foretell.sweeping.trials import TrialLayout, laid_out
from foretell.units import show_seconds

ENGINES = OpenSet("foretell.sweeping.engines", "engine")
KIND = "answer"

MOST_CELLS = 1_000_000
"""More than anybody waits for: a slip of the pen."""


class Grid(NamedTuple):
    """What is asked about: every combination, models outermost and plans innermost."""

    models: Sequence[str]
    clusters: Sequence[str]
    batches: Sequence[int]
    trainers: Sequence[str] = ("pytorch",)
    seqs: Sequence[int] = (0,)
    precisions: Sequence[str] = ("",)
    plans: Sequence[str] = ()
    ask: str = ""  # empty: `predict` where plans are given, else `plan`

    def cells(self, calibration: str = "", **alike: Any) -> list[SweepCell]:
        """The cells; `alike` is what they have in common. Each has the calibration of its cluster's device."""
        ask = self.ask or ("predict" if self.plans else "plan")
        self._check(ask)
        axes = (self.models, self.clusters, self.batches, self.trainers, self.seqs, self.precisions)
        found = itertools.product(*map(dict.fromkeys, (*axes, self.plans or ("",))))
        names = ("model", "cluster", "batch", "trainer", "seq", "precision", "plan")
        asked = [dict(zip(names, one, strict=True)) for one in found]
        measured = calibrations(self.clusters, calibration)
        return [SweepCell(ask=ask, **one, **alike, calibration=measured[str(one["cluster"])]) for one in asked]

    def _check(self, ask: str) -> None:
        takes = ANSWERS[ask].TAKES_PLANS
        if takes and not self.plans:
            raise BadInput(f"to {ask}, and no plan is given", where="--plan", fix="--plan 'dp8 +bf16'")
        if self.plans and not takes:
            raise BadInput(f"plans are given, and {ask} finds its own", where="--plan, --ask", fix="--ask predict")
        for name in ("models", "clusters", "batches", "trainers"):
            if not getattr(self, name):
                raise BadInput(f"a sweep over no {name}", where=name, fix="one or more")
        numbers: tuple[Any, ...] = (*self.batches, *self.seqs)
        for value in numbers:
            if not isinstance(value, int) or isinstance(value, bool):
                raise BadInput(f"a batch or sequence of {value!r}", where="batches, seqs", fix="whole numbers")
        count = 1
        for several in self[:7]:
            count *= max(1, len(several))
        if count > MOST_CELLS:
            raise BadInput(f"a sweep of {count:,} cells", fix=f"at most {MOST_CELLS:,}")


def calibrations(clusters: Sequence[str], named: str) -> dict[str, str]:
    """The file that each cluster is calibrated by: the one that is named for its device, or what is kept here.

    Decided here and not where a cell is answered, so that the engine makes no difference.
    """
    found: dict[str, str] = {}
    own = device_of(named) if named not in ("", NONE) else ""
    for text in clusters:
        try:
            place = catalog.cluster(text)
        except ForetellError:  # its cells will say so
            found[text] = NONE
            continue
        path = file_of(place, named if not own or place.device.name == own else "")
        found[text] = NONE if path is None else str(path.absolute())
    if own and Path(named).absolute() not in map(Path, found.values()):
        what = f"this calibration is of {own}, and no cluster of the sweep has it"
        raise BadInput(what, where="--calibration", fix=f"a cluster of {own}, or --calibration none")
    return found


class Sweep(Summarized, frozen=True, kw_only=True):
    """The table of a sweep."""

    rows: tuple[SweepRow, ...]  # in the order of the cells
    answered: int  # now
    kept: int  # answered before
    complete: bool  # False: interrupted, and rows of cells that were not reached say so
    notes: tuple[str, ...] = ()  # files among the answers that were left out, or changed
    layout: TrialLayout | None = None  # of many trials of each candidate, where one was asked for

    def trials(self, count: int, steps: int, gpus: int) -> TrialLayout:
        """So many trials of each candidate, of so many steps, laid out on so many GPUs (`--trials`)."""
        return laid_out(self.rows, count, steps, gpus)

    @property
    def failures(self) -> tuple[SweepRow, ...]:
        """Cells that have no answer."""
        return tuple(one for one in self.rows if one.status != OK)

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "cells", f"{len(self.rows):,}, {len(self.rows) - len(self.failures):,} with an answer"
        for one in self.rows[:SHOWN]:
            found = f"{show_seconds(one.step_seconds)}  {one.plan}" if one.step_seconds is not None else one.reason
            yield f"{one.model} on {one.cluster}, batch {one.batch:,}", found


Told: TypeAlias = Callable[[int, int, int], None]
"""Called with the cells done, those of them that were kept, and all."""

Engine: TypeAlias = Callable[[Sequence[SweepCell], int], Generator[tuple[int, SweepRow]]]
"""Yields the place and the answer of each cell as they are done, by so many jobs at a time; closed, it ends them."""


def sweep(
    cells: Sequence[SweepCell],
    folder: Path | None = None,
    engine: str = "processes",
    jobs: int = 0,
    told: Told | None = None,
) -> Sweep:
    """Answer all cells. With a folder, answers are kept in it and taken from it."""
    if jobs < 0:
        raise BadInput(f"{jobs} processes", where="--jobs", fix="1 or more, or 0 for all cores")
    answers: Engine = ENGINES[engine].answers
    if any(ANSWERS[ask].ALONE for ask in {cell.ask for cell in cells}):
        jobs = 1
    known, notes = kept(folder) if folder is not None else KeptAnswers({})
    found = {place: known[cell.fingerprint] for place, cell in enumerate(cells) if cell.fingerprint in known}
    before = len(found)
    left = [place for place in range(len(cells)) if place not in found]
    tell = told or _untold
    tell(before, before, len(cells))
    complete = True
    done = answers([cells[place] for place in left], jobs)
    try:
        for at, answer in done:
            place = left[at]
            if folder is not None and answer.status in LASTING:
                _keep(folder, cells[place], answer)
            found[place] = answer
            tell(len(found), before, len(cells))
    except KeyboardInterrupt:
        complete = False
    finally:
        done.close()
    rows = tuple(found.get(place) or row(cell, MISSING) for place, cell in enumerate(cells))
    return Sweep(rows=rows, answered=len(found) - before, kept=before, complete=complete, notes=notes)


def _untold(done: int, kept: int, total: int) -> None:
    """Nobody watches."""


# answers that last


class KeptAnswers(NamedTuple):
    """By the fingerprint of their question; and what is to be said of files beside them."""

    answers: dict[str, SweepRow]
    notes: tuple[str, ...] = ()


class _KeptRow(msgspec.Struct, frozen=True):
    """What is read of a record."""

    fingerprint: str
    row: SweepRow


def kept(folder: Path) -> KeptAnswers:
    """The answers in a folder. Other records are left alone, and those of another version, which are not ours."""
    answers: dict[str, SweepRow] = {}
    notes: list[str] = []
    for path, one in store.records(folder):
        if isinstance(one, BadInput):
            notes.append(f"left out, {one.what} ({shown(path)})")
        elif one.record.kind == KIND:
            with contextlib.suppress(msgspec.ValidationError):
                found = msgspec.convert(one.record.content, _KeptRow)
                answers[found.fingerprint] = found.row
                notes += [f"{shown(path)}: {doubt}" for doubt in one.doubts]
    return KeptAnswers(answers, tuple(notes))


def _keep(folder: Path, cell: SweepCell, answer: SweepRow) -> None:
    content = {"fingerprint": cell.fingerprint, "cell": msgspec.to_builtins(cell), "row": msgspec.to_builtins(answer)}
    about = {"model": cell.model, "plan": answer.plan, "cluster": cell.cluster}
    store.write(folder, record(KIND, content, **about))
