"""What can go wrong, said so that a person knows what to do next.

    ForetellError            everything foretell raises on purpose; the command exits with 2
    ├── UnknownName          a name that is not in an open set (carries the near names)
    ├── BadInput             a file, field, size or option that cannot be used
    ├── MissingExtra         the answer needs a package that is not installed
    └── TraceFailed          a PyTorch module that could not be traced

Inside the search a plan that does not fit is a value (a refusal), never one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class ForetellError(Exception):
    """What is wrong, where, and what would work; each a line of its own."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where  {self.where}")
        if self.fix:
            lines.append(f"  try    {self.fix}")
        return "\n".join(lines)

    def told(self) -> dict[str, Any]:
        """The same for programs: what `--json` prints under `error`. More keys may be added, these stay."""
        return {"what": self.what, "where": self.where, "fix": self.fix}

    def within(self, where: str) -> ForetellError:
        """The same error with the place it was met, when it did not know its place."""
        return self if self.where else type(self)(self.what, where=where, fix=self.fix)


class BadInput(ForetellError):
    """A file, field, size or option that cannot be used."""


class UnknownName(BadInput):
    """A name that is not in an open set."""


class MissingExtra(ForetellError):
    """The answer needs a package that is not installed."""


class TraceFailed(ForetellError):
    """A PyTorch module that could not be traced."""


def near(name: str, known: Iterable[str], most: int = 5) -> list[str]:
    """Known names that a person may have meant, best first."""
    names = sorted(set(known))
    lower = name.lower()
    close = difflib.get_close_matches(lower, names, n=most, cutoff=0.6)
    inside = [known_name for known_name in names if lower and lower in known_name]
    return list(dict.fromkeys([*close, *inside]))[:most]


def first_of(names: Sequence[str], most: int) -> str:
    """The first of many names, and how many more there are; one more is named, which takes no more room."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def unknown(kind: str, name: str, known: Iterable[str], listing: str = "") -> UnknownName:
    """The error for a name nobody knows, with what was probably meant."""
    names = list(known)
    close = near(name, names)
    if close:
        fix = ", ".join(close)
    elif listing:
        fix = listing
    else:
        fix = first_of(sorted(names), 12)
    return UnknownName(f"no {kind} is called {name!r}", fix=fix)
