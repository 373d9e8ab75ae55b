"""What `foretell validate --regret` prints: for each choice of plans the one we pick, the best, and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from foretell.cli.plan_pages import listed, seconds
from foretell.cli.table import folded, table
from foretell.validation.evaluate import ComparedRun
from foretell.validation.regret import HEALTHY, Pick, RegretPlan, Regrets, doubted, has_faults, healthy, regrets
from foretell.validation.score import Regret

Studies: TypeAlias = Sequence[tuple[str, list[ComparedRun]]]

ALL = "all of these"

SMALLEST = 0.0005
"""Losses below are told as none."""

NOTE = (
    "loss: measured time of our pick over the fastest measured, less one. We pick what is predicted fastest of the "
    "plans predicted to run (a chance of one half); by time: of all that ran (the regret of the scoreboard); none: "
    "nothing that ran was predicted to run"
)


def page(studies: Studies) -> str:
    """All studies in a few lines, then each choice that loses something."""
    found = list(_parts(studies))
    choices = [text for name, part in found for text in _choices(name, part)]
    return "\n\n".join([_table(found), *choices, *_doubts(studies), folded(NOTE, 2)])


def summary(studies: Studies) -> str:
    """All studies in a few lines."""
    return "\n\n".join([_table(_parts(studies)), *_doubts(studies), folded(NOTE, 2)])


def _doubts(studies: Studies) -> list[str]:
    """What is left out of the healthy runs beside those on a list of faults, and why."""
    told = [(one, name) for name, _ in studies for one in doubted(name)]
    lines = [folded(f"{name} {' '.join(one.runs)}: {one.why}", 2) for one, name in told]
    return ["\n".join(["not healthy:", *lines])] if lines else []


def _table(found: Sequence[tuple[str, Regrets]]) -> str:
    header = ["loss of our pick, %", "choices", "none", "mean", "median", "worst", "by time", "worst"]
    return table(header, [_line(name, part) for name, part in found])


def _parts(studies: Studies) -> list[tuple[str, Regrets]]:
    """Each study whole, and then without faults of its cluster where these are known; and all of them so."""
    found: list[tuple[str, Regrets]] = []
    every: list[ComparedRun] = []
    for name, compared in studies:
        found.append((name, regrets(compared)))
        if has_faults(name, compared):
            compared = healthy(name, compared)
            found.append((f"{name}, {HEALTHY}", regrets(compared)))
        every += compared
    return [*found, (f"{ALL}, {HEALTHY}", regrets(every))] if len(studies) > 1 else found


def _line(name: str, part: Regrets) -> list[str]:
    none = sum(one.loss is None for one in part.picks)
    mean, worst = _two(part.regret)
    middle = "" if part.median is None else f"{100 * part.median:.1f}"
    return [name, f"{len(part.picks)}", f"{none}", mean, middle, worst, *_two(part.by_time)]


def _two(regret: Regret | None) -> list[str]:
    return ["", ""] if regret is None else [f"{100 * value:.1f}" for value in (regret.mean, regret.max)]


def _choices(name: str, part: Regrets) -> list[str]:
    """The choices with a loss worth a digit."""
    if name.startswith(ALL):  # told study by study
        return []
    losing = [one for one in part.picks if one.loss is None or max(one.loss, one.loss_by_time) >= SMALLEST]
    rows = [line for one in losing for line in _choice(one)]
    header = ["loss", "measured", "predicted", name]
    return [listed(header, rows)] if rows else []


def _choice(one: Pick) -> list[list[str]]:
    """What was to be done, our pick, the pick by time where it is another, and the best."""
    about = f"{_named(one.model)} on {one.ranks:,}, batch {one.batch:,}, {one.plans:,} plans"
    lines = [["none" if one.loss is None else f"{one.loss:.1%}", "", "", about]]
    if one.pick is not None:
        more = [f"{one.failed} that failed, predicted to be faster"] if one.failed else []
        lines.append(_line_of(one.pick, "pick", more))
    if one.by_time != one.pick:
        lines.append(_line_of(one.by_time, f"by time ({one.loss_by_time:.1%})", ["predicted to fail"]))
    return lines if one.best in (one.pick, one.by_time) else [*lines, _line_of(one.best, "best", [])]


def _named(model: str) -> str:
    """The beginning of a model's text, whose first fields tell most; the page of a study has few models."""
    fields = model.split(",")
    return ",".join(fields[:2]) + (",.." if len(fields) > 2 else "")


def _line_of(one: RegretPlan, what: str, more: list[str]) -> list[str]:
    notes = [tag for tag in one.subsets if "fault" in tag] + more
    text = f"{what} {one.plan}" + (f" ({'; '.join(notes)})" if notes else "")
    return ["", seconds(one.measured_seconds), seconds(one.predicted_seconds), text]


def as_json(studies: Studies) -> bytes:
    """Every choice of every study."""
    return msgspec.json.encode({"studies": every(studies)})


def every(studies: Studies) -> list[dict[str, object]]:
    """Each part of each study, with its choices."""
    return [{"study": name, **msgspec.to_builtins(part)} for name, part in _parts(studies)]
