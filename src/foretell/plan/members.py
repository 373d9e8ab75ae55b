"""The strategies and policies that there are: every file of the two folders, found by listing them."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from foretell.plan.policy import Policy
from foretell.plan.strategy import Strategy
from foretell.registry import OpenSet

STRATEGIES = OpenSet("foretell.plan.strategies", "strategy")
POLICIES = OpenSet("foretell.plan.policies", "policy")

Member = TypeVar("Member", Strategy, Policy)


@functools.cache
def strategies() -> dict[str, type[Strategy]]:
    """Every strategy by its word."""
    return {member.word: member for member in _members(STRATEGIES, Strategy)}


@functools.cache
def policies() -> dict[str, type[Policy]]:
    """Every policy by its word, in the order in which they are printed."""
    found = sorted(_members(POLICIES, Policy), key=lambda member: (member.place, member.word))
    return {member.word: member for member in found}


def _members(folder: OpenSet, base: type[Member]) -> list[type[Member]]:
    return [
        member
        for name in folder
        for member in vars(folder[name]).values()
        if isinstance(member, type) and issubclass(member, base) and member.__module__ == folder[name].__name__
    ]


def union(members: dict[str, Any]) -> Any:
    """The union of these classes, as the type that a reader of JSON decodes to."""
    return functools.reduce(lambda left, right: left | right, members.values())
