"""What an expression is worth: a value, a list, a table, what a call makes, or nobody knows."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from foretell.dialects._table import UnknownValue
from foretell.errors import BadInput

PARTS: Final = 100_000
"""Parts that a value may have when it is written out: one that two lists have counts twice."""

SOMETIMES: Final = "..."
"""How a value is written that is set in some cases only."""


@dataclass(frozen=True)
class Leaf:
    """A value, or what cannot be known, and how it stands in the file with what its names were given."""

    code: str
    value: Any

    @property
    def known(self) -> bool:
        return not isinstance(self.value, UnknownValue)


@dataclass
class Listed:
    """A list, or a tuple (`fixed`). Not `whole`: nobody knows how many items it has."""

    items: list[PythonValue]
    code: str
    fixed: bool = False
    whole: bool = True


@dataclass
class Tabled:
    """A dict by its keys. Not `whole`: it may have others."""

    items: dict[Any, PythonValue]
    code: str
    whole: bool = True


@dataclass
class Made:
    """What a call returns: its fields are those that the call was given, and those that were set `later`.

    Nothing is `made` where fields are set of what nobody has seen. What a function of another file was `asked` with,
    that returned it, is kept: not all of it shows in what it returns.
    """

    made: str
    fields: dict[str, PythonValue] = field(default_factory=dict[str, "PythonValue"])
    later: set[str] = field(default_factory=set[str])
    asked: dict[str, PythonValue] = field(default_factory=dict[str, "PythonValue"], compare=False)

    def put(self, name: str, value: PythonValue) -> None:
        self.fields[name] = value
        self.later.add(name)

    @property
    def of_class(self) -> bool:
        """Whether a class was called, by how it is spelt."""
        return self.made.split(".")[-1][:1].isupper()

    @property
    def touched(self) -> bool:
        """Whether a field of it, or of what it has, was set after it was made."""
        return any(isinstance(one, Made) and one.later for one in reachable([self]))


@dataclass(frozen=True)
class FunctionHere:
    """A function whose text is known: the module that has it, its node, and the names around it."""

    module: Any
    node: ast.FunctionDef
    around: dict[str, PythonValue] = field(compare=False)

    def __deepcopy__(self, memo: Any) -> FunctionHere:
        return FunctionHere(self.module, self.node, copy.deepcopy(self.around, memo))


Container: TypeAlias = Listed | Tabled | Made
PythonValue: TypeAlias = Leaf | Container | FunctionHere

OPEN = Leaf(SOMETIMES, UnknownValue("set in some cases only"))
"""A value that is set in some cases only."""

NOTHING = Leaf("None", None)


def unknown(code: str) -> Leaf:
    return Leaf(code, UnknownValue(code))


def changed(by: str) -> Leaf:
    """What something that is not followed may have changed."""
    return Leaf(SOMETIMES, UnknownValue(f"what {by} may have changed"))


def lifted(value: Any) -> PythonValue:
    """A value of Python as one of these."""
    if isinstance(value, list | tuple):
        items = [lifted(one) for one in cast("Sequence[Any]", value)]
        return Listed(items, str(cast("Any", value)), fixed=isinstance(value, tuple))
    if isinstance(value, dict):
        return Tabled({key: lifted(one) for key, one in cast("dict[Any, Any]", value).items()}, str(cast("Any", value)))
    return Leaf(repr(value), value)


def _inside(value: PythonValue) -> Iterable[PythonValue]:
    if isinstance(value, Listed):
        return value.items
    if isinstance(value, Tabled):
        return value.items.values()
    return value.fields.values() if isinstance(value, Made) else ()


def reachable(values: Iterable[PythonValue]) -> Iterator[Container | FunctionHere]:
    """Every list, table, function and everything made that these values are or have."""
    seen: set[int] = set()
    left = list(values)
    while left:
        one = left.pop()
        if not isinstance(one, Leaf) and id(one) not in seen:
            seen.add(id(one))
            left += _inside(one)
            yield one


def measured(value: PythonValue) -> None:
    """Refuse a value that has too many parts, or itself as one, before it is written out."""
    sizes: dict[int, int] = {}

    def size(one: PythonValue) -> int:
        found = sizes.get(id(one), 0)
        if isinstance(one, Leaf | FunctionHere):
            return 1
        if found < 0:
            raise BadInput("a value that has itself as a part", fix="one that can be written out")
        if not found:
            sizes[id(one)] = -1
            found = sizes[id(one)] = 1 + sum(size(inner) for inner in _inside(one))
        if found > PARTS:
            raise BadInput(f"a value of {found:,} parts: more than {PARTS:,} are not read", fix="a smaller one")
        return found

    size(value)


def open_up(values: Iterable[PythonValue], by: str) -> None:
    """What an unknown call or loop reaches may be anything afterwards."""
    open_value: PythonValue = changed(by)
    for one in list(reachable(values)):
        if isinstance(one, Made):
            one.fields = dict.fromkeys((*one.fields, "**"), open_value)
            one.asked = dict.fromkeys(one.asked, open_value)
        elif isinstance(one, Listed) and not one.fixed:
            one.items, one.code, one.whole = [open_value], SOMETIMES, False
        elif isinstance(one, Tabled):
            one.items, one.code, one.whole = {}, SOMETIMES, False


def plain(value: PythonValue) -> Any:
    """A value as a document has it: what is made in a list by the name of what is called."""
    measured(value)
    return _plain(value)


def _plain(value: PythonValue) -> Any:
    if isinstance(value, Listed):
        if not value.whole:
            return next((one.value for one in value.items if isinstance(one, Leaf) and not one.known), OPEN.value)
        return [one.made if isinstance(one, Made) and one.of_class else _plain(one) for one in value.items]
    if isinstance(value, Tabled):
        found = {key: _plain(one) for key, one in value.items.items()}
        unsure = not value.whole or any(isinstance(one, UnknownValue) for one in found.values())
        return UnknownValue(code_of(value)) if unsure else found
    if isinstance(value, Made):
        return UnknownValue(f"{value.made}(...)")
    return value.node.name if isinstance(value, FunctionHere) else value.value


def code_of(value: PythonValue) -> str:
    """How a value is written."""
    measured(value)
    return _code(value)


def _code(value: PythonValue) -> str:
    if isinstance(value, Made):
        given = [
            _code(one) if name.isdecimal() else f"**{_code(one)}" if name.startswith("**") else
            f"{name}={_code(one)}" for name, one in value.fields.items()
        ]  # fmt: skip
        return f"{value.made}({', '.join(given)})"
    return value.node.name if isinstance(value, FunctionHere) else value.code


def same(one: PythonValue, other: PythonValue) -> bool:
    """Whether two values are alike; parts that several have are compared once."""
    seen: set[tuple[int, int]] = set()
    left = [(one, other)]
    while left:
        one, other = left.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        if isinstance(one, Leaf) or isinstance(other, Leaf) or type(one) is not type(other):
            if one != other or type(getattr(one, "value", 0)) is not type(getattr(other, "value", 0)):
                return False
        elif isinstance(one, Listed) and isinstance(other, Listed):
            if (len(one.items), one.code, one.fixed, one.whole) != (
                len(other.items), other.code, other.fixed, other.whole
            ):  # fmt: skip
                return False
            left += zip(one.items, other.items, strict=True)
        elif isinstance(one, Tabled) and isinstance(other, Tabled):
            if list(one.items) != list(other.items) or (one.code, one.whole) != (other.code, other.whole):
                return False
            left += zip(one.items.values(), other.items.values(), strict=True)
        elif isinstance(one, Made) and isinstance(other, Made):
            if one.made != other.made or one.later != other.later or set(one.fields) != set(other.fields):
                return False
            left += [(value, other.fields[name]) for name, value in one.fields.items()]
        elif one != other:  # functions
            return False
    return True
