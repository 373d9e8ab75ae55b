"""What an expression is worth: a value, a list, what a call makes, or nobody knows."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from foretell.dialects._table import UnknownValue


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
    """A list or a tuple."""

    items: list[PythonValue]
    code: str


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
    def touched(self) -> bool:
        """Whether a field of it, or of what it has, was set after it was made."""
        return bool(self.later) or any(one.touched for one in self.fields.values() if isinstance(one, Made))


@dataclass(frozen=True)
class FunctionHere:
    """A function whose text is known: the module that has it, its node, and the names around it."""

    module: Any
    node: ast.FunctionDef
    around: Mapping[str, PythonValue]

    def __deepcopy__(self, memo: Any) -> FunctionHere:
        return self


PythonValue: TypeAlias = Leaf | Listed | Made | FunctionHere

OPEN = Leaf("...", UnknownValue("set in some cases only"))
"""A value that is set in some cases only."""

NOTHING = Leaf("None", None)


def unknown(code: str) -> Leaf:
    return Leaf(code, UnknownValue(code))


def plain(value: PythonValue) -> Any:
    """A value as a document has it: what is made in a list by the name of what is called."""
    if isinstance(value, Listed):
        return [one.made if isinstance(one, Made) else plain(one) for one in value.items]
    if isinstance(value, Made):
        return UnknownValue(f"{value.made}(...)")
    return value.node.name if isinstance(value, FunctionHere) else value.value


def code_of(value: PythonValue) -> str:
    """How a value is written."""
    if isinstance(value, Made):
        given = [
            code_of(one) if name.isdecimal() else f"**{code_of(one)}" if name.startswith("**") else
            f"{name}={code_of(one)}" for name, one in value.fields.items()
        ]  # fmt: skip
        return f"{value.made}({', '.join(given)})"
    return value.node.name if isinstance(value, FunctionHere) else value.code


def reachable(values: Iterable[PythonValue]) -> Iterator[Made]:
    """Everything made that these values are or have."""
    seen: set[int] = set()
    left = list(values)
    while left:
        one = left.pop()
        if isinstance(one, Listed):
            left += one.items
        elif isinstance(one, Made) and id(one) not in seen:
            seen.add(id(one))
            left += one.fields.values()
            yield one


class TwoBranches:
    """Names and what they have, as each of two branches leaves them: first two copies, then what both agree on."""

    def __init__(self, names: dict[str, PythonValue]) -> None:
        self._names = names
        self._originals = list(reachable(names.values()))
        self._memos: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.copies = (copy.deepcopy(names, self._memos[0]), copy.deepcopy(names, self._memos[1]))
        self._back = {
            id(memo[id(one)]): one for memo in self._memos for one in self._originals if id(one) in memo
        }  # fmt: skip

    def settle(self, test: str) -> None:
        """Give the names what both copies say; where they differ it depends on `test`."""
        pairs = [(one, *(memo[id(one)] for memo in self._memos)) for one in self._originals]
        for one, yes, no in pairs:
            one.fields = self._joined(yes.fields, no.fields, test)
            one.later = yes.later | no.later
        joined = self._joined(*self.copies, test)
        self._names.clear()
        self._names.update(joined)

    def _joined(
        self, yes: Mapping[str, PythonValue], no: Mapping[str, PythonValue], test: str
    ) -> dict[str, PythonValue]:
        names = dict.fromkeys([*yes, *no])
        return {name: self.either(yes[name], no[name], test) if name in yes and name in no else OPEN for name in names}

    def either(self, yes: PythonValue, no: PythonValue, test: str) -> PythonValue:
        """One of two values."""
        one, other = self._back.get(id(yes), yes), self._back.get(id(no), no)
        if one is other or one == other:
            return one
        if isinstance(one, Made) and isinstance(other, Made) and one.made == other.made:
            return Made(one.made, self._joined(one.fields, other.fields, test), one.later | other.later)
        if one is OPEN or other is OPEN:
            return OPEN
        return unknown(f"{code_of(one)} if {test} else {code_of(other)}")
