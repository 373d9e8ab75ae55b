"""Expressions of numbers and words that can be worked out without running anything."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from foretell.errors import BadInput

LARGEST: Final = 2**53
"""Of the numbers that are computed."""

LONGEST: Final = 4096
"""Characters of a text, or items of a list, that are put together."""

_SIGNS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one / other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
}

_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
    ast.Is: lambda one, other: _identical(one, other),
    ast.IsNot: lambda one, other: not _identical(one, other),
}

_UNARY: Final[Mapping[type, Callable[[Any], Any]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: lambda value: ~int(value) if isinstance(value, bool) else ~value,  # of a bool Python warns since 3.12
    ast.Not: operator.not_,
}


def _identical(one: Any, other: Any) -> bool:
    """Only of None, True and False is there one object each that a text tells."""
    if not any(value is None or isinstance(value, bool) for value in (one, other)):
        raise CannotKnow
    return one is other


def _in_words(value: Any) -> str:
    if _unordered(value):
        raise CannotKnow
    return str(value)


def _unordered(value: Any) -> bool:
    """Whether a set is in it, whose order only the running program knows."""
    if isinstance(value, list | tuple):
        return any(map(_unordered, cast("Sequence[Any]", value)))
    if isinstance(value, dict):
        return any(map(_unordered, cast("dict[Any, Any]", value).values()))
    return isinstance(value, frozenset)


def _listed(values: Any) -> Any:
    if _unordered(values):
        raise CannotKnow
    return [*values]


_CALLED: Final[Mapping[str, Callable[..., Any]]] = {
    "int": int,
    "float": float,
    "str": _in_words,
    "bool": bool,
    "len": len,
    "min": min,
    "max": max,
    "list": _listed,
    "sum": sum,
    "abs": abs,
    "round": round,
    "divmod": divmod,
    "math.ceil": math.ceil,
}
"""Functions of Python itself that configurations use."""

_METHODS: Final = ("lower", "upper", "startswith", "endswith", "strip", "replace")


class CannotKnow(Exception):
    """The value is not one that can be worked out."""


def computed(sign: ast.operator, one: Any, other: Any) -> Any:
    """A sum, product or power of numbers; words may be put together."""
    if isinstance(sign, ast.Pow) and _number(one) and _number(other):
        if abs(math.pow(one, other)) > LARGEST:  # before it is computed with all its digits
            raise CannotKnow
        found: Any = one**other
    elif type(sign) in _SIGNS and (_number(one) and _number(other)):
        found = _SIGNS[type(sign)](one, other)
    elif isinstance(sign, ast.Add) and _long(one) and type(one) is type(other):
        found = one + other
    elif isinstance(sign, ast.Mult) and _long(one) and isinstance(other, int) and other * len(one) <= LONGEST:
        found = one * other
    else:
        raise CannotKnow
    if _number(found) and not abs(found) <= LARGEST:
        raise CannotKnow
    if _long(found) and len(found) > LONGEST:
        what = "characters" if isinstance(found, str) else "items"
        raise BadInput(f"a value of {len(found):,} {what}: more than {LONGEST:,} are not put together")
    return found


def _long(value: Any) -> bool:
    return isinstance(value, str | list)


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def signed(sign: ast.unaryop, value: Any) -> Any:
    """`+`, `-`, `~` and `not` before a value."""
    return _UNARY[type(sign)](value)


def put_in_words(value: Any, conversion: int, form: str) -> str:
    """A value in an f-string, with `!r` and with what stands behind its colon."""
    if sum(map(int, re.findall(r"\d+", form))) > LONGEST:
        raise CannotKnow
    value = {-1: lambda: value, 115: lambda: str(value), 114: lambda: repr(value), 97: lambda: ascii(value)}[
        conversion
    ]()
    return _short(format(value, form) if form else _in_words(value))


def joined(parts: list[str]) -> str:
    return _short("".join(parts))


def _short(text: str) -> str:
    if len(text) > LONGEST:
        raise BadInput(f"a text of {len(text):,} characters: more than {LONGEST:,} are not put together")
    return text


def compared(node: ast.Compare, values: list[Any]) -> bool:
    """Whether a chain of comparisons holds."""
    pairs = zip(node.ops, values, values[1:], strict=False)
    return all(_COMPARISONS[type(sign)](one, other) for sign, one, other in pairs)


def called(name: str, values: list[Any]) -> Any:
    """What a function of Python itself returns for these values."""
    if name not in _CALLED:
        raise CannotKnow
    return _CALLED[name](*values)


def asked(value: Any, method: str, values: list[Any]) -> Any:
    """What a method of a word returns."""
    if method not in _METHODS or not isinstance(value, str):
        raise CannotKnow
    found = getattr(value, method)(*values)
    if _long(found) and len(found) > LONGEST:
        raise CannotKnow
    return found
