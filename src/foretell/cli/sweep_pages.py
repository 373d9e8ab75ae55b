"""What `foretell sweep` prints: a line for each cell, and what all have in common above it."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Final

from foretell.cli.plan_pages import listed, seconds
from foretell.cli.table import WIDTH, fit, folded
from foretell.sweeping.cell import MISSING, OK, SweepRow
from foretell.sweeping.sweep import Sweep
from foretell.units import show_bytes, show_rate

WORDS: Final = ("cluster", "trainer", "precision")
NUMBERS: Final = ("batch", "seq")
SAID: Final = {"cluster": "on", "precision": "in"}

WIDEST: Final = 20
"""Letters of a name in the table."""


def page(found: Sweep) -> str:
    """A table for each model, with what all cells have in common above, and how many were answered below."""
    rows = found.rows
    varied = [name for name in (*WORDS, *NUMBERS) if len({getattr(one, name) for one in rows}) > 1]
    constant = [name for name in (*WORDS, *NUMBERS) if name not in varied and _shown(rows[0], name)]
    alike = [f"{SAID.get(name, name)} {_shown(rows[0], name)}" for name in constant]
    parts = [folded(", ".join(alike), 2)] if alike else []
    for model, own in itertools.groupby(rows, key=lambda one: one.model):
        parts.append(f"{fit(model, WIDTH)}\n{_table(list(own), varied)}")
    return "\n\n".join([*parts, folded(_amount(found), 2)])


def _table(rows: list[SweepRow], varied: list[str]) -> str:
    header = [*varied, "step", "samples/s", "memory", "plan, or why there is none"]
    return listed(header, [_line(one, varied) for one in rows], sum(name in WORDS for name in varied))


def _shown(one: SweepRow, name: str) -> str:
    value = getattr(one, name)
    if isinstance(value, int):
        return f"{value:,}" if value else ""
    return fit(value, WIDEST)


def _line(one: SweepRow, varied: list[str]) -> list[str]:
    names = [_shown(one, name) for name in varied]
    text = one.status if not one.reason else f"{one.status}: {one.reason}"
    if one.step_seconds is None or one.samples_per_second is None or one.memory_bytes is None:
        return [*names, "", "", "", f"{one.plan}\n{text}" if one.plan else text]
    figures = [seconds(one.step_seconds), show_rate(one.samples_per_second), show_bytes(one.memory_bytes)]
    return [*names, *figures, one.plan if one.status == OK else f"{one.plan}\n{text}"]


def _amount(found: Sweep) -> str:
    """How many cells there are, by what became of them."""
    counts = Counter(one.status for one in found.rows)
    told = [f"{count:,} {'answered' if status == OK else status}" for status, count in counts.most_common()]
    text = f"{len(found.rows):,} cell{'s' if len(found.rows) > 1 else ''}: {', '.join(told)}"
    if found.kept:
        text += f"; {found.kept:,} from before"
    return f"{text}; interrupted" if counts[MISSING] else text
