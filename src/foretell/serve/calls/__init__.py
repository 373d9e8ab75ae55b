"""The calls of the API, one file each: its name is the call's, its first line the summary, `CALL` what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from foretell.registry import OpenSet

JSON: Final = "application/json"

CALLS: Final = OpenSet(__name__, "call")


@dataclass(frozen=True)
class Call:
    """What a call is given, what it answers, and how."""

    body: type[Any]
    gives: Any
    answer: Callable[..., Any]
    media: str = JSON  # of the answer; JSON: the value is written as JSON
    long: bool = False  # it may take minutes; `answer` is then also given whom to tell how far it is


def call(name: str) -> Call:
    """A call by its name."""
    found: Call = CALLS[name].CALL
    return found


def summary(name: str) -> str:
    """What a call is for, in a line."""
    return (CALLS[name].__doc__ or "").partition("\n")[0]
