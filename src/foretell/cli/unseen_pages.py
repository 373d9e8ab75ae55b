"""The score of sources left out, as `validate` prints it first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    runs = left_out.prepared(_by_source(done))
    chosen: dict[str, dict[Slot, Any]] = {}
    for source in sorted({source for sources in in_view().values() for source in sources}):
        chosen[source] = left_out.choose(source, runs)
        for slot, value in chosen[source].items():
            click.echo(f"{source}: {slot.owner} {slot.key} = {value}")
    save(left_out.FILE, left_out.encoded(chosen), "constants")


def answer_ablation(done: Sequence[tuple[Study, list[ComparedRun]]], as_json: bool) -> str:
    """What each constant is worth."""
    import msgspec

    from foretell.validation.ablation import RUNS, ablated
    from foretell.validation.left_out import prepared

    found = list(ablated(prepared(_by_source(done), RUNS)))
    if as_json:
        return msgspec.json.encode(
            {"constants": [{**msgspec.structs.asdict(one), "stays": one.stays} for one in found]}
        ).decode()
    rows = [
        [f"{one.owner} {one.key}", f"{100 * one.seen:+.1f}", "-" if one.unseen is None else f"{100 * one.unseen:+.1f}"]
        for one in sorted(found, key=lambda one: (one.unseen is None, one.seen))
    ]
    felt = [one for one in found if one.felt]
    stay = sum(one.stays for one in felt)
    lines = [
        table(["error without it, points more", "its sources", "others"], rows),
        "",
        "its sources: those that it was chosen on; others: sources that did not see it,",
        "or for which it was chosen again without them. The constant of the trainer",
        "below takes its place.",
        f"{len(found)} constants have another one below. Some run feels {len(felt)} of them;",
        f"predictions are worse without {stay}.",
    ]
    return "\n".join(lines)


def _by_source(done: Sequence[tuple[Study, list[ComparedRun]]]) -> Iterator[tuple[str, ComparedRun]]:
    """Healthy runs, and who measured them."""
    from foretell.validation.sources import healthy, source_of

    for study, compared in done:
        yield from ((source_of(study.family, study.name, one.row), one) for one in compared if healthy(one.row))


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
