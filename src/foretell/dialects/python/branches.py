"""Names as each of two branches leaves them, where nobody knows which is taken."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from foretell.dialects.python.values import (
    OPEN,
    SOMETIMES,
    Leaf,
    Listed,
    Made,
    PythonValue,
    Tabled,
    code_of,
    reachable,
    same,
    unknown,
)


class TwoBranches:
    """Names and what they have, as each of two branches leaves them: first two copies, then what both agree on."""

    def __init__(self, names: dict[str, PythonValue]) -> None:
        self._names = names
        self._originals = list(reachable(names.values()))
        self._memos: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.copies = (copy.deepcopy(names, self._memos[0]), copy.deepcopy(names, self._memos[1]))
        self._back: dict[int, PythonValue] = {
            id(memo[id(one)]): one for memo in self._memos for one in self._originals if id(one) in memo
        }  # fmt: skip
        self._merged: dict[tuple[int, int], tuple[Made, PythonValue, PythonValue]] = {}

    def settle(self, test: str) -> None:
        """Give the names what both copies say; where they differ it depends on `test`."""
        for one in self._originals:
            yes, no = (memo[id(one)] for memo in self._memos)
            if isinstance(one, Made):
                one.fields = self._joined(yes.fields, no.fields, test)
                one.later = yes.later | no.later
            elif isinstance(one, Listed | Tabled):
                self._settled(one, yes, no)
        joined = self._joined(*self.copies, test)
        self._names.clear()
        self._names.update(joined)

    def _settled(self, one: Listed | Tabled, yes: Any, no: Any) -> None:
        def original(item: PythonValue) -> PythonValue:
            return self._back.get(id(item), item)

        alike = same(yes, no)
        one.code, one.whole = (yes.code, yes.whole) if alike else (SOMETIMES, False)
        if isinstance(one, Listed):
            one.items = [original(item) for item in yes.items] if alike else [OPEN]
        else:
            one.items = {key: original(item) for key, item in yes.items.items()} if alike else {}

    def _joined(
        self, yes: Mapping[str, PythonValue], no: Mapping[str, PythonValue], test: str
    ) -> dict[str, PythonValue]:
        names = dict.fromkeys([*yes, *no])
        return {name: self.either(yes[name], no[name], test) if name in yes and name in no else OPEN for name in names}

    def either(self, yes: PythonValue, no: PythonValue, test: str) -> PythonValue:
        """One of two values."""
        one, other = self._back.get(id(yes), yes), self._back.get(id(no), no)
        if one is other or same(one, other):
            return one
        if isinstance(one, Made) and isinstance(other, Made) and one.made == other.made:
            if (id(one), id(other)) not in self._merged:  # a part that several have is joined once
                made = Made(one.made, {}, one.later | other.later)
                self._merged[id(one), id(other)] = made, one, other
                made.fields = self._joined(one.fields, other.fields, test)
            return self._merged[id(one), id(other)][0]
        if any(isinstance(value, Leaf) and value.code == SOMETIMES for value in (one, other)):
            return OPEN
        return unknown(f"{code_of(one)} if {test} else {code_of(other)}")
