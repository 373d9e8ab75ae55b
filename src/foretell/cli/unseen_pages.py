"""The score of sources left out, as `validate` prints it first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.table import table

if TYPE_CHECKING:
    from foretell.validation.evaluate import ComparedRun
    from foretell.validation.in_view import Slot
    from foretell.validation.study import Study
    from foretell.validation.unseen import UnseenScore, UnseenScores

HEADER = ("source left out, %", "sources", "runs", "unseen", "bias", "one anchor", "in view", "inside")


def score(done: Sequence[tuple[Study, list[ComparedRun]]]) -> UnseenScores:
    """Of all studies together: a source can stand in several."""
    from foretell.validation.unseen import unseen_runs, unseen_scores

    return unseen_scores([run for study, compared in done for run in unseen_runs(study, compared)])


def choose_all(done: Sequence[tuple[Study, list[ComparedRun]]]) -> None:
    """Choose constants again without each source, and keep them for the score."""
    from foretell.files import save
    from foretell.validation import left_out
    from foretell.validation.in_view import in_view
    from foretell.validation.sources import healthy, source_of

    runs = left_out.prepared(
        (source_of(study.family, study.name, one.row), one)
        for study, compared in done
        for one in compared
        if healthy(one.row)
    )
    chosen: dict[str, dict[Slot, Any]] = {}
    for source in sorted({source for sources in in_view().values() for source in sources}):
        chosen[source] = left_out.choose(source, runs)
        for slot, value in chosen[source].items():
            click.echo(f"{source}: {slot.owner} {slot.key} = {value}")
    save(left_out.FILE, left_out.encoded(chosen), "constants")


def unseen_lines(scores: UnseenScores, more: bool) -> list[str]:
    """By study and over all; with `more` by trainer and by source too."""
    if scores.all is None:
        return []
    lines = [_table(HEADER[0], [*scores.studies, scores.all])]
    if more:
        lines += ["", _table("by trainer", scores.trainers), "", _table("by source", scores.sources)]
    return [
        *lines,
        "",
        "Mean absolute error of step times, every source with the same weight.",
        "unseen: constants chosen again without the source; one anchor: the same after",
        "one run of the source corrected the others; in view: as they ship.",
        f"{scores.constants} constants were chosen with scored runs in view; {scores.staying} of them stay as they are",
        "without their sources, because no other software has a value for them.",
        "",
    ]


def _table(title: str, scores: Sequence[UnseenScore]) -> str:
    rows = [
        [
            one.name,
            f"{one.sources:,}",
            f"{one.runs:,}",
            f"{100 * one.unseen:.1f}",
            f"{100 * one.bias:+.1f}",
            "-" if one.anchored is None else f"{100 * one.anchored:.1f}",
            f"{100 * one.seen:.1f}",
            f"{100 * one.inside:.0f}",
        ]
        for one in scores
    ]
    return table([title, *HEADER[1:]], rows)
