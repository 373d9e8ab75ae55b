"""Answers of `foretell bench`: engines side by side, and the survey of frameworks beside its prediction."""

# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
# Figures that follow from a row are told with it.

from __future__ import annotations

import msgspec

from foretell.bench.reading import ReadingLine
from foretell.bench.row import BenchRow
from foretell.bench.study import About
from foretell.cli.answers.form import AnswerForm
from foretell.replicas.survey.page import Survey


class BenchRowAnswer(BenchRow, frozen=True, kw_only=True):
    """One engine, task, number of ranks and seed. Figures are null where it did not run."""

    epoch_seconds: float | None  # in which all samples of the task are seen once
    samples_per_second: float | None
    memory_bytes: float | None  # of the fullest rank
    mean_memory_bytes: float | None  # over all ranks
    communication_share: float | None  # of a step, in which the rank that works most waits for others
    target_seconds: float | None  # of training until the target was reached; null: it was not


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a step that a better engine would not have."""

    engine: str
    pair: str
    device: str
    conditions: str
    ranks: int
    name: str
    share: float  # of the step; 0 where it cannot be read off a breakdown
    why: str


class FindingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the survey of frameworks, asked of these rows."""

    finding: str  # its short name
    text: str
    pair: str
    device: str
    conditions: str
    status: str  # holds, fails, cannot be told
    evidence: str


class Benched(msgspec.Struct, frozen=True, kw_only=True):
    """A study: what was measured, what it says together, and why."""

    about: About
    lines: tuple[ReadingLine, ...]  # all seeds of a row together
    rows: tuple[BenchRowAnswer, ...]
    reasons: tuple[Slow, ...]  # why each row is slow
    findings: tuple[FindingAnswer, ...]
    unread: tuple[str, ...]  # files of the folder that are no rows, and why
    folder: str
    files: tuple[str, ...]  # pages and figures that were written


class EngineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A framework or strategy that can be measured."""

    engine: str
    title: str
    plan: str  # what it does, in foretell's grammar
    installed: str  # the version; empty: it is not there


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    engines: tuple[EngineAnswer, ...]


class InstalledEngine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine in an environment of its own."""

    package: str
    python: str  # the interpreter that has it
    version: str


class Surveyed(Survey, frozen=True, kw_only=True):
    """The survey of frameworks beside its prediction."""

    files: tuple[str, ...]  # pages and figures that were written


FORMS = (
    AnswerForm("bench", Benched, "engines side by side; `bench --show FOLDER` has the same keys"),
    AnswerForm("bench --list", Engines, "the engines, and which are installed"),
    AnswerForm("bench --install", InstalledEngine, "an engine in an environment of its own"),
    AnswerForm("bench --survey", Surveyed, "the survey of frameworks beside its prediction"),
)
