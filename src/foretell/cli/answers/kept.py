"""Answers about what is kept and known: records, studies, this installation, members."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from typing import Any

import msgspec

from foretell.cli.answers.form import AnswerForm
from foretell.cli.kept import KeptCheck
from foretell.cli.verbs.doctor import DoctorFinding
from foretell.cli.verbs.stack import StackPage
from foretell.cli.verbs.validate import StudyRow
from foretell.records.record import Record
from foretell.validation.anchors import AnchorScores
from foretell.validation.conditions import Condition
from foretell.validation.constants import Constant
from foretell.validation.coverage import Coverage
from foretell.validation.evaluate import Scores
from foretell.validation.regret import Regrets
from foretell.validation.side_by_side import SideBySide
from foretell.validation.unseen import UnseenScores
from foretell.validation.unseen_memory import MemoryScores


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are kept."""

    folder: str
    records: int
    rows: tuple[dict[str, Any], ...]  # by column
    unreadable: dict[str, str]  # files that are left out, and why
    doubts: dict[str, str]  # records that were changed, or say what cannot be, by their name


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of predictions, by study."""

    studies: tuple[Scores, ...]
    unseen: UnseenScores  # on sources that no constant was chosen on
    memory: MemoryScores  # off, with the runs of a source left out
    conditions: dict[str, tuple[Condition, ...]]  # by study, where its source predicted its runs and tells their parts


class FittedConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Constants that were chosen with measured runs in view."""

    constants: tuple[Constant, ...]


class StudyRegrets(Regrets, frozen=True, kw_only=True):
    """What following the predictions would have cost."""

    study: str


class RegretBoard(msgspec.Struct, frozen=True, kw_only=True):
    """Regret by study."""

    studies: tuple[StudyRegrets, ...]


class AnchorBoard(msgspec.Struct, frozen=True, kw_only=True):
    """What one measured run does for others of its source, and regret by study."""

    anchors: AnchorScores
    regret: tuple[StudyRegrets, ...]


class StudyRows(msgspec.Struct, frozen=True, kw_only=True):
    """Every run, measured and predicted."""

    rows: tuple[StudyRow, ...]


class PublishedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Each run beside its prediction."""

    runs: tuple[SideBySide, ...]


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Whether kept predictions still hold."""

    checks: tuple[KeptCheck, ...]
    regressed: bool


class KeptStacks(msgspec.Struct, frozen=True, kw_only=True):
    """Stacks that are kept here."""

    stacks: tuple[StackPage, ...]


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What is there and what is missing."""

    foretell: str  # its version
    python: str
    system: str
    findings: tuple[DoctorFinding, ...]


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for a shell."""

    shell: str
    file: str  # where they go
    text: str


FORMS = (
    AnswerForm("results", Records, "records that are kept"),
    AnswerForm("results show", Record, "one record"),
    AnswerForm("validate", Scoreboard, "errors of predictions, by study"),
    AnswerForm("validate --rows", StudyRows, "every run, measured and predicted"),
    AnswerForm("validate --table", PublishedRuns, "each run, published and predicted"),
    AnswerForm("validate --regret", RegretBoard, "what following the predictions would have cost"),
    AnswerForm("validate --anchors", AnchorBoard, "what one measured run does for others of its source"),
    AnswerForm("validate --coverage", Coverage, "how often runs lie in their bands"),
    AnswerForm("validate --constants", FittedConstants, "constants that were chosen with measured runs in view"),
    AnswerForm("stack", KeptStacks, "stacks that are kept, or the one that is named"),
    AnswerForm("check", Checks, "whether kept predictions still hold"),
    AnswerForm("doctor", Examined, "what is installed and found"),
    AnswerForm("schema", dict[str, Any], "JSON Schemas, by answer; of one answer its schema alone"),
    AnswerForm("completion", Completion, "lines for a shell"),
    AnswerForm("list", dict[str, Any], "the members of a kind, under the kind's name"),
    AnswerForm("describe", dict[str, Any], "`kind`, `name`, `title`, and the member under its kind's name"),
)
