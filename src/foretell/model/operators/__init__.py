"""The operators: one file a family. A family defines its operators and how to add them to a graph."""

from __future__ import annotations

import functools
from typing import Any

from foretell.model.operator import Operator
from foretell.registry import OpenSet

FAMILIES = OpenSet(__name__, "operator family")


@functools.cache
def operators() -> dict[str, type[Operator]]:
    """Every operator by its tag, from every family."""
    found: dict[str, type[Operator]] = {}
    for family in FAMILIES:
        for member in vars(FAMILIES[family]).values():
            if isinstance(member, type) and issubclass(member, Operator) and member is not Operator:
                found[str(member.__struct_config__.tag)] = member
    return found


def any_operator() -> Any:
    """The union of all operators, as the type that a reader of graphs decodes to."""
    members = list(operators().values())
    union: Any = members[0]
    for member in members[1:]:
        union = union | member
    return union
