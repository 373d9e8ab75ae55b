"""What is wrong with a request, as it is answered: the three lines of the command line, in the API's own words."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final, cast

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

PATH: Final = re.compile(r"(?<![\w./:~@-])(?:/(?!api/)|[A-Za-z]:\\)[^\s'\"`,;()]*[/\\]([^\s'\"`,;()/\\]*)")
"""From the root of a disk, of two names at least, and its last one."""


def problem_of(found: ForetellError) -> Problem:
    """An error as `--json` tells it, without options of the command line and without any path of this machine."""
    plain = hidden_in(msgspec.to_builtins(found.told()))
    return msgspec.convert(spoken_all(_without_paths(plain)), Problem)


def _without_paths(value: Any) -> Any:
    """A path says where this machine keeps what, to whoever asks: of its files there is the name alone."""
    if isinstance(value, dict):
        return {name: _without_paths(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_paths(one) for one in cast("list[Any]", value)]
    return _named(value) if isinstance(value, str) else value


def _named(text: str) -> str:
    handed_in = os.environ.get(uploads.FOLDER, "")
    if handed_in and handed_in in text:
        text = " ".join(FILE if handed_in in word else word for word in text.split(" "))
    for folder in (os.environ.get("HOME", ""), sys.prefix, str(Path(__file__).parents[2])):  # which may have blanks
        text = text.replace(f"{folder}{os.sep}", "") if len(folder) > 1 else text
    return PATH.sub(lambda path: path[1] or FILE, text)
