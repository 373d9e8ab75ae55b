"""Answers about what is kept and known: records, studies, this installation, members."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from typing import Any

import msgspec

from foretell.cli.answers.form import Form
from foretell.cli.kept import Check
from foretell.cli.verbs.doctor import Finding
from foretell.records.record import Record
from foretell.validation.constants import Constant
from foretell.validation.coverage import Coverage
from foretell.validation.evaluate import Scores
from foretell.validation.regret import Regrets


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are kept."""

    folder: str
    records: int
    rows: tuple[dict[str, Any], ...]  # by column
    unreadable: dict[str, str]  # files that are left out, and why


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of predictions, by study."""

    studies: tuple[Scores, ...]


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Constants that were chosen with measured runs in view."""

    constants: tuple[Constant, ...]


class StudyRegrets(Regrets, frozen=True, kw_only=True):
    """What following the predictions would have cost."""

    study: str


class RegretBoard(msgspec.Struct, frozen=True, kw_only=True):
    """Regret by study."""

    studies: tuple[StudyRegrets, ...]


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Whether kept predictions still hold."""

    checks: tuple[Check, ...]
    regressed: bool


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What is there and what is missing."""

    foretell: str  # its version
    python: str
    system: str
    findings: tuple[Finding, ...]


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for a shell."""

    shell: str
    file: str  # where they go
    text: str


FORMS = (
    Form("results", Records, "records that are kept"),
    Form("results show", Record, "one record"),
    Form("validate", Scoreboard, "errors of predictions, by study"),
    Form("validate --regret", RegretBoard, "what following the predictions would have cost"),
    Form("validate --coverage", Coverage, "how often runs lie in their bands"),
    Form("validate --constants", Constants, "constants that were chosen with measured runs in view"),
    Form("check", Checks, "whether kept predictions still hold"),
    Form("doctor", Examined, "what is installed and found"),
    Form("schema", dict[str, Any], "JSON Schemas, by answer; of one answer its schema alone"),
    Form("completion", Completion, "lines for a shell"),
    Form("list", dict[str, Any], "the members of a kind, under the kind's name"),
    Form("describe", dict[str, Any], "`kind`, `name`, `title`, and the member under its kind's name"),
)
