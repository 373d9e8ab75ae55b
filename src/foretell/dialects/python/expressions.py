"""Expressions of numbers and words that can be worked out without running anything."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

LARGEST: Final = 2**53
"""Of the numbers that are computed."""

LONGEST: Final = 4096
"""Characters of a text that is put together."""

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
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def _listed(values: Any) -> Any:
    return [*values]


_CALLED: Final[Mapping[str, Callable[..., Any]]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "len": len,
    "min": min,
    "max": max,
    "list": _listed,
    "math.ceil": math.ceil,
}
"""Functions of Python itself that configurations use."""

_METHODS: Final = ("lower", "upper", "startswith", "endswith", "strip", "replace", "get")


class CannotKnow(Exception):
    """The value is not one that can be worked out."""


def computed(sign: ast.operator, one: Any, other: Any) -> Any:
    """A sum, product or power of numbers; words may be put together."""
    if isinstance(sign, ast.Pow) and _number(one) and _number(other):
        found: Any = math.pow(one, other)
        found = int(found) if found.is_integer() else found
    elif type(sign) in _SIGNS and (_number(one) and _number(other)):
        found = _SIGNS[type(sign)](one, other)
    elif isinstance(sign, ast.Add) and _long(one) and type(one) is type(other):
        found = one + other
    elif isinstance(sign, ast.Mult) and _long(one) and isinstance(other, int) and other * len(one) <= LONGEST:
        found = one * other
    else:
        raise CannotKnow
    if (_number(found) and abs(found) > LARGEST) or (_long(found) and len(found) > LONGEST):
        raise CannotKnow
    return found


def _long(value: Any) -> bool:
    return isinstance(value, str | list)


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


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
    """What a method of a word or a table returns."""
    if method not in _METHODS or type(value) not in (str, dict):
        raise CannotKnow
    found = getattr(value, method)(*values)
    if _long(found) and len(found) > LONGEST:
        raise CannotKnow
    return found
