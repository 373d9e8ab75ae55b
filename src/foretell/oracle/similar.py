"""How far predictions of runs like this one were from what was measured: one line on every answer.

`similar.json` has a line for each source, trainer, device and extent of published runs: how far each was.
`foretell validate --coverage --learn` writes it with the bands. Runs of the same trainer and kind of model (CNNs,
transformers) are quoted, those with the device and the extent (one rank, one node, several) in common first. Where
fewer than `ENOUGH` of the trainer were measured, runs of other trainers are, the answer says so, and its interval is
that of a trainer which nobody measured (`bands.Widths.unseen`), where that is wider.
"""

from __future__ import annotations

import functools
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from foretell.units import show_percent

FILE: Final = Path(__file__).with_name("similar.json")
NAMES: Final = Path(__file__).with_name("studies.toml")

ENOUGH: Final = 5
"""Runs from which a median is quoted."""

OF_THE_TRAINER: Final = (("work", "trainer", "device", "extent"), ("work", "trainer", "device"), ("work", "trainer"))
OF_OTHERS: Final = (("work", "device", "extent"), ("work", "device"), ("work",))
"""What a question and measured runs can have in common, the most first."""


ANY: Final = "any device"


class SimilarRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Measured runs of one kind: errors are |predicted - measured| / measured."""

    source: str
    trainer: str
    device: str
    work: str  # CNNs (most of the work is convolutions), or transformers (matrix products)
    extent: str  # one rank, one node, several nodes
    errors: tuple[float, ...]


class SimilarAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How far predictions of the most similar runs were."""

    runs: int
    median_error: float
    study: str  # that most of them are of: its id
    alike: tuple[str, ...]  # what they have in common with the question
    study_name: str
    study_runs: int  # how many of them are of that study
    trainer: str  # that was asked about
    trainer_runs: int  # measured runs of it, of this kind of model; fewer than `ENOUGH`: those above are of others
    of_device: bool  # all ran on the device that was asked about; False: too few did, and these are of any

    @property
    def of_the_trainer(self) -> bool:
        """Whether the runs are of the trainer that was asked about."""
        return self.trainer_runs >= ENOUGH

    def __str__(self) -> str:
        error, common = show_percent(self.median_error), ", ".join((*self.alike, *(() if self.of_device else (ANY,))))
        share = "all" if self.study_runs == self.runs else "mostly" if 2 * self.study_runs > self.runs else "most"
        origin = f"{share} from {self.study_name}"
        if self.of_the_trainer:
            return f"{error} median error of {self.runs:,} measured runs ({common}), {origin}"
        count = {0: "no measured run", 1: "only 1 measured run"}.get(
            self.trainer_runs, f"only {self.trainer_runs} measured runs"
        )
        return (
            f"{count} of {self.trainer} ({self.alike[0]}); "
            f"{error} median error of {self.runs:,} runs of other trainers ({common}), {origin}"
        )


def extent_of(ranks: int, reasons: Iterable[str]) -> str:
    """How far a plan reaches."""
    if "nodes" in reasons:
        return "several nodes"
    return "one rank" if ranks == 1 else "one node"


def work_of(reasons: Iterable[str]) -> str:
    return "CNNs" if "convolutions" in reasons else "transformers"


@functools.cache
def groups() -> tuple[SimilarRuns, ...]:
    """What ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[SimilarRuns, ...])


@functools.cache
def study_names() -> dict[str, str]:
    """The names of the sources of runs, by their ids."""
    return tomllib.loads(NAMES.read_text())


@functools.cache
def runs_of(trainer: str, work: str) -> int:
    """Measured runs of a trainer, of one kind of model."""
    return sum(len(one.errors) for one in groups() if (one.trainer, one.work) == (trainer, work))


def seen(trainer: str, reasons: Iterable[str]) -> bool:
    """Whether enough runs of a trainer were measured to know how far predictions of it are."""
    return runs_of(trainer, work_of(reasons)) >= ENOUGH


def accuracy(device: str, trainer: str, ranks: int, reasons: Iterable[str]) -> SimilarAccuracy | None:
    """Of the runs most like this one; None where none are like it at all."""
    why = tuple(reasons)
    return most_alike(work_of(why), trainer, device, extent_of(ranks, why))


@functools.cache
def most_alike(work: str, trainer: str, device: str, extent: str) -> SimilarAccuracy | None:
    """The same; there are few such questions, and many runs."""
    question = {"work": work, "trainer": trainer, "device": device, "extent": extent}
    own = runs_of(trainer, work)
    for common in OF_THE_TRAINER if own >= ENOUGH else OF_OTHERS:
        alike = [one for one in groups() if all(getattr(one, name) == question[name] for name in common)]
        if sum(len(one.errors) for one in alike) >= ENOUGH:
            return _quoted(alike, tuple(question[name] for name in common), trainer, own, "device" in common)
    return None


def _quoted(
    runs: Sequence[SimilarRuns], alike: tuple[str, ...], trainer: str, own: int, of_device: bool
) -> SimilarAccuracy:
    errors = [error for one in runs for error in one.errors]
    sizes: dict[str, int] = {}
    for one in runs:
        sizes[one.source] = sizes.get(one.source, 0) + len(one.errors)
    study = max(sizes, key=lambda name: sizes[name])
    return SimilarAccuracy(
        runs=len(errors),
        median_error=statistics.median(errors),
        study=study,
        alike=alike,
        study_name=study_names().get(study, study),
        study_runs=sizes[study],
        trainer=trainer,
        trainer_runs=own,
        of_device=of_device,
    )
