"""What is wrong with a request, as it is answered: the same three lines as on the command line, as JSON."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from foretell.errors import ForetellError
from foretell.serve import uploads


class Broken(msgspec.Struct, frozen=True):
    """A rule that a plan breaks."""

    rule: str
    why: str
    way_out: str = ""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, where, and what would work."""

    what: str
    where: str = ""
    fix: str = ""
    refusals: tuple[Broken, ...] = ()  # rules that a plan breaks
    plans: tuple[str, ...] = ()  # that break none


FILE: Final = "the file"


def problem_of(found: ForetellError) -> Problem:
    """An error without any path of this machine in it."""
    from foretell.serve.question import Refused

    what, where, fix = (_without_paths(text) for text in (found.what, found.where, found.fix))
    if not isinstance(found, Refused):
        return Problem(what, where, fix)
    told = tuple(Broken(one.rule, one.why, one.way_out) for one in found.refusals)
    return Problem(what, where, fix, told, found.plans)


def _without_paths(text: str) -> str:
    folder = os.environ.get(uploads.FOLDER, "")
    if not folder or folder not in text:
        return text
    words = (FILE if folder in word else word for word in text.split(" "))
    return " ".join(words)
