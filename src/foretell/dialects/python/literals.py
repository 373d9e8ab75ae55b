"""Values of Python that are known as a whole, their parts, and whether a condition holds."""

from __future__ import annotations

import ast
from typing import Any

from foretell.dialects.python.expressions import CannotKnow
from foretell.dialects.python.values import (
    FunctionHere,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    lifted,
    measured,
)


def to_compare(node: ast.Compare, value: PythonValue) -> Any:
    """A value that is compared; what is made here need not be known to be told from None."""
    seen = isinstance(value, Listed | Tabled | FunctionHere)
    return object() if seen and all(isinstance(one, ast.Is | ast.IsNot) for one in node.ops) else literal(value)


def part(value: PythonValue, key: Any) -> PythonValue:
    """What stands at a place of a list, a table or a text."""
    if isinstance(value, Listed | Tabled) and value.whole:
        items: Any = value.items
        return items[key]
    return lifted(literal(value)[key])


def literal(value: PythonValue) -> Any:
    """A value of Python, where all of it is known."""
    measured(value)
    return _literal(value)


def _literal(value: PythonValue) -> Any:
    if isinstance(value, Listed) and value.whole:
        items: list[Any] = [_literal(one) for one in value.items]
        return tuple(items) if value.fixed else items
    if isinstance(value, Tabled) and value.whole:
        return {key: _literal(one) for key, one in value.items.items()}
    if not isinstance(value, Leaf) or not value.known:
        raise CannotKnow
    return value.value


def truth_of(value: PythonValue) -> bool | None:
    """Whether a condition holds; None where nobody knows."""
    if isinstance(value, Listed | Tabled):
        return bool(value.items) if value.whole else None
    if isinstance(value, Made):
        return True if value.of_class else None
    if isinstance(value, FunctionHere):
        return True
    return bool(value.value) if value.known else None
