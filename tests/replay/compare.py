"""Two files of digits beside each other: what differs, by kind, how far, with examples."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = 3

Digits = dict[str, dict[str, dict[str, Any]]]
"""Case to kind to quantity to value."""


class Move(NamedTuple):
    """One quantity that is not what it was."""

    case: str
    kind: str
    quantity: str
    before: Any
    after: Any

    @property
    def far(self) -> float:
        """By how much, relative to what it was; infinite where a text or a count differs."""
        before, after = number(self.before), number(self.after)
        if before is None or after is None:
            return math.inf
        return abs(after - before) / max(abs(before), abs(after)) if before != after else 0.0

    def __str__(self) -> str:
        before, after = (number(value) for value in (self.before, self.after))
        if before is None or after is None:
            return f"{self.case}, {self.quantity}: {_short(self.before)} -> {_short(self.after)}"
        return f"{self.case}, {self.quantity}: {before!r} -> {after!r}"


NOWHERE = "(nothing)"


def number(value: Any) -> float | None:
    """The number that a text of digits stands for; counts are numbers too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.lstrip("-").startswith(("0x", "inf", "nan")):
        try:
            return float.fromhex(value)
        except ValueError:
            return None
    return None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def read(path: Path) -> Digits:
    return dict(json.loads(line) for line in path.read_text().splitlines())


def moves(before: Digits, after: Digits, within: float = 0.0) -> Iterator[Move]:
    """Every quantity that differs; floats by more than `within`, relative. What one of them lacks differs too."""
    for case in _of_both(before, after):
        old, new = before.get(case, {}), after.get(case, {})
        for kind in _of_both(old, new):
            was, now = old.get(kind, {}), new.get(kind, {})
            for quantity in _of_both(was, now):
                move = Move(case, kind, quantity, was.get(quantity, NOWHERE), now.get(quantity, NOWHERE))
                if move.before != move.after and not move.far <= within:  # also where it is not a number
                    yield move


def _of_both(one: Iterable[str], other: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*one, *other)))


def crashes(digits: Digits) -> list[str]:
    """Cases that no answer was given for."""
    return [f"{case}: {own['crash']['text']}" for case, own in digits.items() if "crash" in own]


def counted(digits: Digits) -> dict[str, int]:
    """How many values of each kind were compared."""
    found: dict[str, int] = defaultdict(int)
    for own in digits.values():
        for kind, values in own.items():
            found[kind] += len(values)
    return dict(found)


class Kind(NamedTuple):
    """All moves of one kind."""

    name: str
    values: int
    cases: int
    largest: str  # relative, of floats and counts; how many texts differ
    examples: list[Move]


def by_kind(found: Iterable[Move]) -> list[Kind]:
    """Moves by kind, each with its largest ones."""
    kinds: dict[str, list[Move]] = defaultdict(list)
    for move in found:
        kinds[move.kind].append(move)
    return [_kind(name, own) for name, own in sorted(kinds.items())]


def _kind(name: str, own: list[Move]) -> Kind:
    real = sorted((move for move in own if move.far < math.inf), key=lambda move: -move.far)
    texts = [move for move in own if not move.far < math.inf]
    parts = [f"{real[0].far:.2g}"] if real else []
    parts += [f"{len(texts):,} words"] if texts else []
    return Kind(name, len(own), len({move.case for move in own}), ", ".join(parts), (real + texts)[:EXAMPLES])


def table(kinds: Iterable[Kind]) -> str:
    """For a terminal."""
    lines = [f"{'kind':<28}{'values':>8}{'cases':>8}  largest relative move", "-" * 70]
    for kind in kinds:
        lines.append(f"{kind.name:<28}{kind.values:>8,}{kind.cases:>8,}  {kind.largest}")
        lines += [f"    {move}" for move in kind.examples]
    return "\n".join(lines)


def markdown(kinds: Iterable[Kind]) -> str:
    """For a file."""
    lines = ["| kind | values | cases | largest relative move | for example |", "|---|--:|--:|--:|---|"]
    for kind in kinds:
        example = str(kind.examples[0]).replace("|", "\\|")
        lines.append(f"| {kind.name} | {kind.values:,} | {kind.cases:,} | {kind.largest} | {example} |")
    return "\n".join(lines)
