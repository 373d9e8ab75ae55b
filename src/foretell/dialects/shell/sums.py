"""Whole numbers of a shell: sums, products, comparisons and choices, as $(( )) and (( )) compute them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_]\w*)|(\*\*|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%<>!?:()]))")

_LEVELS: Final = (("||",), ("&&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
"""From what binds least to what binds most."""

LARGEST: Final = 2**63


class Undecided(Exception):
    """A value that only a running shell knows, or a sum that is none."""


def computed(text: str, known: Callable[[str], str | None]) -> int | None:
    """The value of an expression; None where it is not known."""
    try:
        tokens = _tokens(text)
        found = _choice(tokens, known)
        if tokens or abs(found) >= LARGEST:
            return None
        return found
    except (Undecided, ZeroDivisionError, IndexError, RecursionError, OverflowError, ValueError):
        return None


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise Undecided(text)
        found.append(match[0].strip())
        at = match.end()
    return found


def _choice(tokens: list[str], known: Callable[[str], str | None]) -> int:
    condition = _level(tokens, known, 0)
    if not tokens or tokens[0] != "?":
        return condition
    tokens.pop(0)
    yes = _choice(tokens, known)
    if tokens.pop(0) != ":":
        raise Undecided
    no = _choice(tokens, known)
    return yes if condition else no


def _level(tokens: list[str], known: Callable[[str], str | None], level: int) -> int:
    if level == len(_LEVELS):
        return _power(tokens, known)
    total = _level(tokens, known, level + 1)
    while tokens and tokens[0] in _LEVELS[level]:
        sign = tokens.pop(0)
        total = _SIGNS[sign](total, _level(tokens, known, level + 1))
    return total


def _power(tokens: list[str], known: Callable[[str], str | None]) -> int:
    base = _factor(tokens, known)
    if tokens and tokens[0] == "**":
        tokens.pop(0)
        exponent = _power(tokens, known)
        if not 0 <= exponent <= 64:
            raise Undecided
        return base**exponent
    return base


def _factor(tokens: list[str], known: Callable[[str], str | None]) -> int:
    token = tokens.pop(0)
    if token == "(":
        total = _choice(tokens, known)
        if tokens.pop(0) != ")":
            raise Undecided
        return total
    if token in "+-!":
        value = _factor(tokens, known)
        return {"+": value, "-": -value, "!": int(not value)}[token]
    if token.isdecimal():
        return int(token)
    text = known(token)
    if text is None or not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise Undecided(token)
    return int(text)


def _quotient(one: int, other: int) -> int:
    """Towards zero, as shells divide."""
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


_SIGNS: Final[dict[str, Callable[[int, int], int]]] = {
    "||": lambda one, other: int(bool(one) or bool(other)),
    "&&": lambda one, other: int(bool(one) and bool(other)),
    "==": lambda one, other: int(one == other),
    "!=": lambda one, other: int(one != other),
    "<=": lambda one, other: int(one <= other),
    ">=": lambda one, other: int(one >= other),
    "<": lambda one, other: int(one < other),
    ">": lambda one, other: int(one > other),
    "<<": lambda one, other: one << min(other, 64),
    ">>": lambda one, other: one >> min(other, 64),
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": _quotient,
    "%": lambda one, other: one - other * _quotient(one, other),
}
