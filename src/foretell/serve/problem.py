"""What is wrong with a request, as it is answered: the three lines of the command line, in the API's own words."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from foretell.errors import ForetellError
from foretell.secrets import hidden_in
from foretell.serve import uploads
from foretell.serve.words import spoken_all


class BrokenRule(msgspec.Struct, frozen=True):
    """A rule that a plan breaks."""

    rule: str
    why: str
    way_out: str = ""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, where, and what would work."""

    what: str
    where: str = ""
    fix: str = ""
    refusals: tuple[BrokenRule, ...] = ()  # rules that a plan breaks
    plans: tuple[str, ...] = ()  # that break none


FILE: Final = "the file"


def problem_of(found: ForetellError) -> Problem:
    """An error as `--json` tells it, without options of the command line and without any path of this machine."""
    plain = hidden_in(found.told())
    told = {name: _without_paths(value) if isinstance(value, str) else value for name, value in plain.items()}
    return msgspec.convert(spoken_all(msgspec.to_builtins(told)), Problem)


def _without_paths(text: str) -> str:
    folder = os.environ.get(uploads.FOLDER, "")
    if not folder or folder not in text:
        return text
    words = (FILE if folder in word else word for word in text.split(" "))
    return " ".join(words)
