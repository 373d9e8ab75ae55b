# pyright: basic
"""What a GPU's allocator held when a step was fullest, by where in Python it came from: the allocator's own history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from foretell.runtime.assignment import Held

MOST = 2_000_000
"""Events of a step that are kept."""

SHOWN = 8
"""Places that are told; all others are one."""

Event = Mapping[str, Any]


def begin() -> None:
    """Keep what the allocator does from here on, with the place in Python that asked for it."""
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=MOST)


def end() -> list[Held]:
    """What was made since and was there still at the fullest moment, the largest first."""
    traces = torch.cuda.memory._snapshot().get("device_traces", [])
    torch.cuda.memory._record_memory_history(enabled=None)
    return by_source(max(traces, key=len, default=[]))


def by_source(events: list[Event]) -> list[Held]:
    """Blocks of the fullest moment of a history, alike ones together."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for block in held_at(events, fullest(events)):
        row = rows[source(block.get("frames", []))]
        row[0] += block["size"]
        row[1] += 1
    found = sorted((Held(where, size, count) for where, (size, count) in rows.items()), key=lambda one: -one.size)
    rest = found[SHOWN:]
    others = [Held("elsewhere", sum(one.size for one in rest), sum(one.count for one in rest))] if rest else []
    return [*found[:SHOWN], *others]


def fullest(events: Iterable[Event]) -> int:
    """The number of the event after which most is allocated."""
    held = most = at = 0
    for number, one in enumerate(events):
        held += {"alloc": one.get("size", 0), "free_requested": -one.get("size", 0)}.get(one["action"], 0)
        if held > most:
            most, at = held, number
    return at


def held_at(events: list[Event], at: int) -> list[Event]:
    """Blocks that were made in a history and are there still after an event."""
    there: dict[int, Event] = {}
    for one in events[: at + 1]:
        if one["action"] == "alloc":
            there[one["addr"]] = one
        elif one["action"] == "free_requested":
            there.pop(one["addr"], None)
    return list(there.values())


SAYS_NOTHING = ("/nn/modules/module.py", "/_ops.py", "/_contextlib.py", "/_dynamo/", "/_device.py", "/overrides.py")
SAYS_NOTHING += ("/_python_dispatch.py", "/runtime/counting.py", "/runtime/subject.py", "/autograd/")
SAYS_NOTHING += ("/torch/_compile.py", "/utils/checkpoint.py", "/_functional_collectives.py")
"""Files that every operator passes."""


def source(frames: Iterable[Mapping[str, Any]]) -> str:
    """The innermost place in Python that says something: a file, a line and a function."""
    for one in frames:
        file = one.get("filename", "")
        if file.endswith(".py") and not any(word in file for word in SAYS_NOTHING):
            return f"{'/'.join(file.rsplit('/', 2)[-2:])}:{one.get('line', 0)} {one.get('name', '')}"
    return "the backward pass, where no Python is"
