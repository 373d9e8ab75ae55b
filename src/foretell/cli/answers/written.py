"""What is said about files that were written, and about the page that is served."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import AnswerForm
from foretell.dialects import Unsaid


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was written."""

    file: str
    bytes: int
    title: str
    plan: str
    figures: tuple[str, ...]  # files of single figures
    picture: str  # the file of one picture; empty: none was asked for


class ExportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration."""

    dialect: str
    plan: str
    trainer: str
    file: str  # its name, or where it was written
    text: str
    unsaid: tuple[Unsaid, ...]  # what the file has no words for, and where it goes
    launch: str  # the command or script that starts it
    notes: tuple[str, ...]


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page is, as soon as it answers."""

    url: str
    api: str  # its description
    token: str  # for the header Authorization: Bearer TOKEN, or the page as url?token=TOKEN; empty: none is needed
    pid: int


FORMS = (
    AnswerForm("report", Reported, "the page that was written"),
    AnswerForm("serve", Serving, "where the page is; more answers come from its API"),
    AnswerForm("export", ExportAnswer, "a trainer's configuration"),
)
