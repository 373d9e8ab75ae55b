"""Two plans as single changes: ranks that go from one axis to another, the options of an axis, one policy.

A plan between the two has some of the changes. Ranks that an axis loses another gains, so that a change keeps their
number wherever both plans have as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

from foretell.plan.members import policies
from foretell.plan.plan import Plan, axis_text, part_of, policy_text
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policy import Policy
from foretell.plan.strategy import Strategy

Key: TypeAlias = tuple[str, str]
"""An axis: its word, and the part of the model that it is for."""

Done: TypeAlias = frozenset[int]
"""Which of the changes are made."""


class Moved(NamedTuple):
    """Ranks of axes, each multiplied by a factor."""

    factors: tuple[tuple[Key, Fraction], ...]


class Differences:
    """What is to be changed in one plan to come to another."""

    def __init__(self, first: Plan, second: Plan) -> None:
        self.first, self.second = first, second
        self.here, self.there = _axes(first), _axes(second)
        self.changes: list[Moved | Key | str] = [*self._moves(), *self._options(), *self._order(), *self._policies()]

    def plan(self, done: Done) -> Plan:
        """The plan with these changes."""
        if not done:
            return self.first
        if len(done) == len(self.changes):
            return self.second
        made = [self.changes[at] for at in done]
        axes = tuple(axis for key in self._ordered(made) for axis in self._axis(key, made))
        return Plan(axes, tuple(self._chosen(word, word in made) for word in policies()))

    def told(self, at: int) -> str:
        """One of the changes in words."""
        change = self.changes[at]
        if isinstance(change, Moved):
            return _moved(change)
        if isinstance(change, tuple):
            return f"{_unranked(self.here[change])} to {_unranked(self.there[change])}"
        if change == ORDER:
            return f"axes in the order {' '.join(key[0] for key in self.there)}"
        old, new = self.first.policy(change), self.second.policy(change)
        if isinstance(old, Microbatches) and isinstance(new, Microbatches):
            return f"{new.count} micro-batch{'' if new.count == 1 else 'es'} instead of {old.count}"
        if new == type(new)():
            return f"without {policy_text(old)}"
        return f"{policy_text(old)} to {policy_text(new)}" if old != type(old)() else policy_text(new)

    # what changes

    def _moves(self) -> Iterator[Moved]:
        """Prime factors that axes lose, each with an axis that gains it; what is left over changes the ranks."""
        lost: list[tuple[int, Key]] = []
        gained: list[tuple[int, Key]] = []
        for key in (*self.here, *(key for key in self.there if key not in self.here)):
            before, after = (
                Counter(_primes(self._world(self.here, key))),
                Counter(_primes(self._world(self.there, key))),
            )
            lost += [(prime, key) for prime in (before - after).elements()]
            gained += [(prime, key) for prime in (after - before).elements()]
        times: dict[tuple[Key, Key], int] = {}
        for prime, source in list(lost):
            match = next((one for one in gained if one[0] == prime), None)
            if match is not None:
                gained.remove(match)
                lost.remove((prime, source))
                times[source, match[1]] = times.get((source, match[1]), 1) * prime
        for (source, target), factor in times.items():
            yield Moved(((source, Fraction(1, factor)), (target, Fraction(factor))))
        left: dict[Key, Fraction] = {}
        for prime, key in lost:
            left[key] = left.get(key, Fraction(1)) / prime
        for prime, key in gained:
            left[key] = left.get(key, Fraction(1)) * prime
        yield from (Moved(((key, factor),)) for key, factor in left.items())

    def _options(self) -> Iterator[Key]:
        """Axes of both plans that do something else."""
        for key in self.here:
            if key in self.there and not _alike(self.here[key], self.there[key]):
                yield key

    def _order(self) -> Iterator[str]:
        if [key for key in self.here if key in self.there] != [key for key in self.there if key in self.here]:
            yield ORDER

    def _policies(self) -> Iterator[str]:
        yield from (word for word in policies() if self.first.policy(word) != self.second.policy(word))

    # a plan between

    def _ordered(self, made: Iterable[object]) -> list[Key]:
        """All axes of both plans, in the order of the first one until that is changed."""
        base, others = (self.there, self.here) if ORDER in made else (self.here, self.there)
        order = list(base)
        after = 0
        for key in others:
            if key not in order:
                order.insert(after, key)
            after = order.index(key) + 1
        return order

    def _axis(self, key: Key, made: Iterable[object]) -> Iterator[Strategy]:
        """An axis as far as it is changed, nothing where it has one rank."""
        factor = Fraction(1)
        for change in made:
            if isinstance(change, Moved):
                for name, times in change.factors:
                    factor *= times if name == key else 1
        world = int(self._world(self.here, key) * factor)
        if world == 1:
            return
        new = key not in self.here or key in made or (key in self.there and _alike(self.here[key], self.there[key]))
        options = self.there[key] if new and key in self.there else self.here[key]
        yield options if options.world == world else _plain(options, world)

    def _chosen(self, word: str, changed: bool) -> Policy:
        return (self.second if changed else self.first).policy(word)

    def _world(self, axes: dict[Key, Strategy], key: Key) -> int:
        return axes[key].world if key in axes else 1


ORDER = "order"


def _axes(plan: Plan) -> dict[Key, Strategy]:
    return {(axis.word, part_of(axis)): axis for axis in plan.axes if axis.world > 1}


def _plain(axis: Strategy, world: int) -> Strategy:
    """The axis with so many ranks in one row: no groups, no grid."""
    names = {field.name for field in msgspec.structs.fields(axis)}
    shape = {name: empty for name, empty in SHAPE.items() if name in names}
    return msgspec.structs.replace(axis, ranks=world, **shape)


SHAPE: dict[str, object] = {"shard": 0, "grid_ranks": ()}
"""How the ranks of an axis lie."""


def _unranked(axis: Strategy) -> str:
    """The text of an axis without its ranks, unless these lie in groups or a grid."""
    text = axis_text(axis)
    if _plain(axis, axis.world) != axis:
        return text
    _, colon, options = text.rpartition(":") if ":" in text else ("", "", "")
    return f"{_name((axis.word, part_of(axis)))}{colon}{options}"


def _name(key: Key) -> str:
    return key[0] + (f"[{key[1]}]" if key[1] else "")


def _alike(one: Strategy, other: Strategy) -> bool:
    """Whether two axes do the same, on however many ranks; groups and grids are the same if their ranks are."""
    if _plain(one, 1) != _plain(other, 1):
        return False
    return one == other or (_plain(one, one.world) == one and _plain(other, other.world) == other)


def _moved(change: Moved) -> str:
    if len(change.factors) == 2:
        (source, _), (target, factor) = change.factors
        fewer, more = (f"halve {_called(source)}", f"double {_called(target)}")
        return f"{fewer}, {more}" if factor == 2 else f"{_called(source)} / {factor}, {_called(target)} x {factor}"
    ((key, factor),) = change.factors
    return f"{_called(key)} x {factor}"


def _called(key: Key) -> str:
    """An axis as people say it: TP, DP; those with long names as they are written."""
    return _name((key[0].upper() if len(key[0]) == 2 else key[0], key[1]))


def _primes(number: int) -> list[int]:
    found: list[int] = []
    for prime in chain((2,), range(3, number + 1, 2)):
        while number % prime == 0:
            found.append(prime)
            number //= prime
        if number == 1:
            break
    return found
