"""What `foretell validate --regret` prints: for each choice of plans the one we pick, the best, and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from foretell.cli.plan_pages import folded, listed, seconds
from foretell.cli.table import table
from foretell.validation.evaluate import Compared
from foretell.validation.regret import HEALTHY, Measured, Pick, Regrets, healthy, regrets

Studies: TypeAlias = Sequence[tuple[str, list[Compared]]]

SMALLEST = 0.0005
"""Losses below are told as none."""

NOTE = "loss: measured time of the plan that was predicted fastest, over the fastest measured, less one"


def page(studies: Studies) -> str:
    """All studies in a few lines, then each choice that loses something."""
    found = list(_parts(studies))
    rows = [_line(name, part) for name, part in found]
    header = ["loss of our pick, %", "choices", "none", "mean", "worst"]
    return "\n\n".join(
        [table(header, rows), *(text for name, part in found for text in _choices(name, part)), folded(NOTE, 2)]
    )


def _parts(studies: Studies) -> list[tuple[str, Regrets]]:
    """Each study whole, and then without faults of its cluster where these are known."""
    found: list[tuple[str, Regrets]] = []
    for name, compared in studies:
        found.append((name, regrets(compared)))
        if any(HEALTHY in one.row.subsets for one in compared):
            found.append((f"{name}, {HEALTHY}", regrets(healthy(compared))))
    return found


def _line(name: str, part: Regrets) -> list[str]:
    if part.regret is None:
        return [name, "0", "", "", ""]
    right = sum(one.loss < SMALLEST for one in part.picks)
    figures = [f"{100 * value:.1f}" for value in (part.regret.mean, part.regret.max)]
    return [name, f"{len(part.picks)}", f"{right}", *figures]


def _choices(name: str, part: Regrets) -> list[str]:
    """The choices with a loss worth a digit; the others are counted above."""
    rows = [line for one in part.picks if one.loss >= SMALLEST for line in _choice(one)]
    header = ["loss", "ranks", "batch", "plans", "measured", "predicted", name]
    return [listed(header, rows)] if rows else []


def _choice(one: Pick) -> list[list[str]]:
    """Three lines: what was to be done, our pick, and the best."""
    notes = [tag for tag in one.pick.subsets if "fault" in tag]
    notes += ["foretold not to fit"] if one.too_large else []
    notes += [f"{one.failed} that failed were foretold to be faster"] if one.failed else []
    about = [f"{one.loss:.1%}", f"{one.ranks:,}", f"{one.batch:,}", f"{one.plans:,}", "", "", _named(one.model)]
    picked = f"pick {one.pick.plan}" + (f" ({'; '.join(notes)})" if notes else "")
    return [about, _line_of(one.pick, picked), _line_of(one.best, f"best {one.best.plan}")]


def _named(model: str) -> str:
    """The beginning of a model's text, whose first fields tell most; the page of a study has few models."""
    fields = model.split(",")
    return ",".join(fields[:2]) + (",.." if len(fields) > 2 else "")


def _line_of(one: Measured, text: str) -> list[str]:
    return [*[""] * 4, seconds(one.measured_seconds), seconds(one.predicted_seconds), text]


def as_json(studies: Studies) -> bytes:
    """Every choice of every study."""
    parts = [{"study": name, **msgspec.to_builtins(part)} for name, part in _parts(studies)]
    return msgspec.json.encode({"studies": parts})
