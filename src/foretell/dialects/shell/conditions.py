"""Conditions of a script: true, false, or only a running shell knows (None)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from foretell.dialects.shell.sums import computed
from foretell.dialects.shell.values import Pieces, decided

_NUMBERS: Final[dict[str, Callable[[int, int], bool]]] = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-lt": lambda one, other: one < other,
    "-le": lambda one, other: one <= other,
    "-gt": lambda one, other: one > other,
    "-ge": lambda one, other: one >= other,
}
_TEXTS: Final = ("=", "==", "!=", "<", ">", "=~")


def tested(words: Sequence[Pieces], known: Callable[[str], str | None]) -> bool | None:
    """What [ ... ] or [[ ... ]] says of these words."""
    try:
        test = _Test([decided(word) for word in words], known)
        found = test.either()
    except IndexError:
        return None
    return None if test.words else found


class _Test:
    """Takes the words of a test from its front. A word that is not known is None."""

    def __init__(self, words: list[str | None], known: Callable[[str], str | None]) -> None:
        self.words = words
        self._known = known

    def either(self) -> bool | None:
        found = self._both()
        while self.words and self.words[0] in ("||", "-o"):
            self.words.pop(0)
            other = self._both()
            found = True if found or other else None if found is None or other is None else False
        return found

    def _both(self) -> bool | None:
        found = self._one()
        while self.words and self.words[0] in ("&&", "-a"):
            self.words.pop(0)
            other = self._one()
            found = False if found is False or other is False else None if found is None or other is None else True
        return found

    def _one(self) -> bool | None:
        word = self.words.pop(0)
        if word == "!" and self.words:
            found = self._one()
            return None if found is None else not found
        if word == "(":
            found = self.either()
            self.words.pop(0)
            return found
        if self.words and self.words[0] in (*_TEXTS, *_NUMBERS):
            return self._compared(word, str(self.words.pop(0)), self.words.pop(0))
        if word is not None and re.fullmatch("-[a-zA-Z]", word) and self.words and self.words[0] not in ("&&", "||"):
            return self._unary(word, self.words.pop(0))
        return None if word is None else bool(word)

    def _unary(self, sign: str, word: str | None) -> bool | None:
        """Files are not looked at: they are those of the machine that runs the script."""
        if word is None or sign not in ("-z", "-n"):
            return None
        return (word == "") == (sign == "-z")

    def _compared(self, one: str | None, sign: str, other: str | None) -> bool | None:
        if one is None or other is None:
            return None
        if sign in _NUMBERS:
            left, right = (computed(text or "0", self._known) for text in (one, other))
            return None if left is None or right is None else _NUMBERS[sign](left, right)
        if sign == "=~":
            try:
                return re.search(other, one) is not None
            except re.error:
                return None
        if sign in "<>":
            return one < other if sign == "<" else one > other
        return (one == other or fnmatchcase(one, other)) == (sign != "!=")
