"""What `foretell validate --anchors` prints: what one measured run does for others, and what our picks cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.cli.coverage_pages import anchor_lines
from foretell.cli.table import table

if TYPE_CHECKING:
    from foretell.validation.anchors import AnchorScores
    from foretell.validation.sides import Sides
    from foretell.validation.study import Study

NOTE = (
    "Mean error of other runs of a source, %, and below it the middle over sources;",
    "constants and effects are learnt without it; the middle of draws. none: nothing",
    "was measured; whole: all that one run was off by; stack: as a kept stack has it;",
    "anchor: as --anchor; 3, 10, 30: the same with so many runs; best: the share of",
    "one run's error that, for each likeness, would have been best for this source.",
)


def answer_anchors(done: list[tuple[Study, list[Sides]]], as_json: bool) -> str:
    """Errors and intervals after one run, and the losses of picks, in a few lines."""
    import msgspec

    from foretell.cli import regret_pages
    from foretell.errors import BadInput
    from foretell.validation.anchors import anchor_scores
    from foretell.validation.unseen import unseen_runs

    runs = [run for study, sides in done for run in unseen_runs(study, sides)]
    found = anchor_scores(runs)
    if found is None:
        fix = "all studies: foretell validate --anchors"
        raise BadInput("too few sources have two runs of one trainer", where="--anchors", fix=fix)
    seen = [(study.name, [one.seen for one in sides]) for study, sides in done]
    if as_json:
        return msgspec.json.encode({"anchors": found, "regret": regret_pages.every(seen)}).decode()
    return "\n".join([*_errors(found), "", *anchor_lines(found), regret_pages.summary(seen)])


def _errors(found: AnchorScores) -> list[str]:
    rows: list[list[str]] = []
    for one in found.errors:
        rows.append([one.name, str(one.sources), *(f"{100 * mean:.1f}" for mean, _ in one.ways.values())])
        if one.sources > 1:
            rows.append(["", "", *(f"{100 * middle:.1f}" for _, middle in one.ways.values())])
    return [table(["after measured runs", "sources", *found.errors[0].ways], rows), *NOTE]
