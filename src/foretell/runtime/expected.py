"""The collectives that the program says one rank takes part in, in the shape of those that are counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from foretell.program.action import Communicate
from foretell.program.expanded import ExpandedProgram
from foretell.runtime.assignment import Collective


def expected(program: ExpandedProgram, place: int = 0) -> list[Collective]:
    """Of a step of the ranks at a place of the pipeline; of as many steps as it takes until all has happened once."""
    messages = list(program.communications(program.kinds[place]))
    steps = math.lcm(*(message.every for message, _ in messages))
    found: Counter[tuple[str, tuple[str, ...], int, int]] = Counter()
    for message, times in messages:
        for kind, ranks in _seen(message):
            found[kind, message.axes, ranks, round(message.payload)] += times * _parts(message) * steps // message.every
    return sorted(Collective(*key, count) for key, count in found.items())


def _parts(message: Communicate) -> int:
    """Messages, each with the whole payload; to several servers each has a share, and all of them are one."""
    return 1 if message.kind in ("push", "pull") else message.messages


def _seen(message: Communicate) -> tuple[tuple[str, int], ...]:
    """What a rank is seen to do: where all pass something on, or give rows to a neighbour, it sends and receives."""
    rows = message.kind == "exchange" and message.what != "weights"
    return (("send", 2), ("receive", 2)) if message.kind == "shift" or rows else ((message.kind, message.ranks),)


def whenever(counted: Iterable[Collective]) -> list[Collective]:
    """What was counted, without its phase: the program and torch may differ in when, not in what."""
    found: Counter[tuple[str, tuple[str, ...], int, int]] = Counter()
    for one in counted:
        found[one.kind, one.axes, one.ranks, one.payload] += one.count
    return sorted(Collective(*key, count) for key, count in found.items())
