"""An algorithm by the words that people use for it: `ring`, `rabenseifner`, `parameter_server:2`, `hierarchical:4`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from foretell.errors import BadInput, unknown
from foretell.registry import OpenSet
from foretell.runtime.collectives._schedule import Numbered, Round, ScheduledAlgorithm, Team

ALGORITHMS = OpenSet("foretell.runtime.collectives", "algorithm for collectives")

ALIASES = {
    "tree": "binomial",
    "recursive-doubling": "butterfly",
    "rabenseifner": "recursive",
    "recursive-halving": "recursive",
    "ps": "parameter_server",
    "pairwise": "direct",
}
"""Other names: those of the papers."""

NUMBERED = {"parameter_server": "servers", "hierarchical": "ranks of an island"}
"""Algorithms that take a number, and what it counts."""

OTHERWISE = {"all-reduce": "ring", "all-gather": "ring", "reduce-scatter": "ring", "broadcast": "binomial"}
"""What does the kinds that a chosen algorithm does not have."""


class AlgorithmChoice(NamedTuple):
    """An algorithm, with its number where it takes one (0 servers: every rank is one)."""

    name: str
    number: int = 1

    @property
    def text(self) -> str:
        return f"{self.name}:{self.number}" if self.name in NUMBERED else self.name

    def does(self, kind: str) -> bool:
        return kind in _member(self.name).KINDS

    def check(self, ranks: int) -> None:
        """Refuse a number that does not go with so many ranks, before there are any."""
        next(self.rounds("all-reduce", Team.of(0, ranks, ranks)), None)

    def rounds(self, kind: str, team: Team) -> Iterator[Round]:
        """The rounds of one rank; a team of one has none."""
        if len(team) == 1:
            return iter(())
        if not self.does(kind):
            name = OTHERWISE.get(kind, "direct")
            return _member(name).rounds(kind, team)
        if self.name in NUMBERED:
            return cast(Numbered, ALGORITHMS[self.name]).numbered(kind, team, self.number)
        return _member(self.name).rounds(kind, team)


def chosen(text: str) -> AlgorithmChoice:
    """The algorithm that a text names."""
    name, _, number = text.strip().lower().partition(":")
    name = ALIASES.get(name, name.replace("-", "_"))
    if name not in ALGORITHMS:
        raise unknown("algorithm for collectives", name, (*ALGORITHMS, *ALIASES)).within("--collectives")
    if not number:
        return AlgorithmChoice(name)
    if name not in NUMBERED:
        raise BadInput(f"{name} takes no number", where="--collectives", fix=name)
    if not number.isdigit():
        raise BadInput(f"{text!r}: {NUMBERED[name]} are a number", where="--collectives", fix=f"{name}:2")
    if name == "hierarchical" and not int(number):
        raise BadInput("islands have at least one rank", where="--collectives", fix="hierarchical:2")
    return AlgorithmChoice(name, int(number))


def _member(name: str) -> ScheduledAlgorithm:
    return cast(ScheduledAlgorithm, ALGORITHMS[name])
