"""What is wrong in the text of a plan: the place, what is expected there, and texts with it mended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from foretell.plan import synonyms
from foretell.plan.members import strategies

SHOWN = 100
"""Characters of a text that an error shows around the place."""


class PlanSyntaxError(Exception):
    """What is wrong at a character, what should be there, and texts with it mended, best first."""

    def __init__(self, what: str, at: int, expected: str, mended: list[str]) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.expected = expected
        self.mended = mended


@dataclass
class Item:
    """One word of the text, from one blank to the next."""

    whole: str  # all of the plan's text
    start: int
    end: int
    text: str = field(init=False)  # in lower case except in brackets

    def __post_init__(self) -> None:
        raw = self.whole[self.start : self.end]
        self.text = re.sub(r"\[[^\]]*\]?|[^\[]+", lambda m: m[0] if m[0][0] == "[" else m[0].lower(), raw)

    def wrong(self, what: str, at: int, expected: str, *instead: str) -> PlanSyntaxError:
        """It is wrong at one of its characters; these could stand instead of it, and last, nothing."""
        mended = [self.whole[: self.start] + text + self.whole[self.end :] for text in (*instead, "")]
        return PlanSyntaxError(what, self.start + at, expected, [*self.glued(at), *self.said_otherwise(), *mended])

    def glued(self, at: int) -> list[str]:
        """Where something is missing before a blank or a word begins oddly: the text without that blank."""
        before, after = self.whole[: self.start], self.whole[self.end :]
        if at == len(self.text) and re.match(r"\s+[0-9a-z]", after):  # dp 8, dp8: zero3
            return [before + self.text + after.lstrip()]
        if at == 0 and re.match("[:,[0-9]", self.text) and before.strip():  # dp8 :zero3
            return [before.rstrip() + self.text + after]
        return []

    def said_otherwise(self) -> list[str]:
        """Where the item is a word from elsewhere: the text with the plan's word for it."""
        before, after = self.whole[: self.start], self.whole[self.end :]
        if policy := synonyms.policy(self.text):
            return [f"{before}+{policy}{after}"]
        meant = synonyms.option(self.text)
        if meant is None:
            return []
        rest = f"{before.rstrip()} {after.lstrip()}"
        axis = re.compile(rf"(?<!\S)({meant.axis}[0-9]+)(:\S+)?(?!\S)", re.IGNORECASE).search(rest)
        if axis is None:
            ranks = meant.ranks or re.sub("[^0-9].*", "", strategies()[meant.axis].example[len(meant.axis) :])
            return [f"{before}{meant.axis}{ranks}:{meant.option}{after}"]
        added = (f"{axis[0]},{meant.option}" if axis[2] else "", f"{axis[1]}:{meant.option}")
        return [rest[: axis.start()] + text + rest[axis.end() :] for text in added if text]


def quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN // 2 else f"{text[: SHOWN // 2]}...")


def picture(text: str, problem: PlanSyntaxError) -> str:
    """What is wrong, the text around the place, and a caret under it with what is expected."""
    first = max(0, problem.at - SHOWN // 2)
    line = "".join(sign if " " <= sign <= "~" else " " if sign.isspace() else "?" for sign in text)
    before = "..." if first else ""
    after = "..." if first + SHOWN < len(text) else ""
    shown = f"{before}{line[first : first + SHOWN]}{after}"
    caret = " " * (len(before) + problem.at - first) + "^"
    return f"{problem.what}\n    {shown}\n    {caret} expected {problem.expected}"
