"""The score of sources left out, as `validate` prints it first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.table import table

if TYPE_CHECKING:
    from foretell.validation.evaluate import ComparedRun
    from foretell.validation.in_view import Slot
    from foretell.validation.kinds import KindScore
    from foretell.validation.sides import Sides
    from foretell.validation.study import Study
    from foretell.validation.unseen import UnseenScore, UnseenScores
    from foretell.validation.unseen_memory import MemoryScore, MemoryScores

HEADER = ("left out, %", "sources", "runs", "scored", "rows", "source", "bias", "anchor", "in view")


def score(done: Sequence[tuple[Study, list[Sides]]]) -> UnseenScores:
    """Of all studies together: a source can stand in several."""
    from foretell.validation.unseen import row_counts, unseen_runs, unseen_scores

    runs = [run for study, sides in done for run in unseen_runs(study, sides)]
    return unseen_scores(runs, row_counts((study, [one.seen for one in sides]) for study, sides in done))


def choose_all(done: Sequence[tuple[Study, list[ComparedRun]]]) -> None:
    """Choose constants again without each source, and without each fold of its rows, and keep them for the score."""
    from foretell.files import save
    from foretell.validation import left_out, rows_left_out
    from foretell.validation.in_view import in_view
    from foretell.validation.tried import shared_out, with_prices

    runs, more = (left_out.prepared(_by_source(done), most) for most in (left_out.CELL_ROWS, rows_left_out.ROWS))
    chosen: dict[str, dict[Slot, Any]] = {}
    folded: dict[str, list[dict[Slot, Any]]] = {}
    with shared_out([*runs, *more]):
        runs, more = with_prices(runs), with_prices(more)
        for source in sorted({source for sources in in_view().values() for source in sources}):
            chosen[source] = left_out.choose(source, runs)
            for slot, value in chosen[source].items():
                click.echo(f"{source}: {slot.owner} {slot.key} = {value}")
            rows = [one for one in runs if one.source != source] + [one for one in more if one.source == source]
            folded[source] = [rows_left_out.choose_without_fold(source, at, rows) for at in range(rows_left_out.FOLDS)]
    save(left_out.FILE, left_out.encoded(chosen), "constants")
    save(rows_left_out.FILE, rows_left_out.encoded(folded), "constants")


def answer_ablation(done: Sequence[tuple[Study, list[ComparedRun]]], as_json: bool) -> str:
    """What each constant is worth."""
    import msgspec

    from foretell.validation.ablation import RUNS, ablated
    from foretell.validation.freedom import effective_freedom
    from foretell.validation.left_out import prepared

    found = list(ablated(prepared(_by_source(done), RUNS)))
    free = effective_freedom(prepared(_by_source(done)))
    if as_json:
        told = [{**msgspec.structs.asdict(one), "stays": one.stays} for one in found]
        return msgspec.json.encode({"constants": told, "freedom": free}).decode()
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
        f"Effective degrees of freedom: {free.effective:.1f} of {free.constants} numbers, by {free.runs:,} runs.",
    ]
    return "\n".join(lines)


def _by_source(done: Sequence[tuple[Study, list[ComparedRun]]]) -> Iterator[tuple[str, ComparedRun]]:
    """Healthy runs, and who measured them."""
    from foretell.validation.sources import healthy, source_of

    for study, compared in done:
        yield from ((source_of(study.family, study.name, one.row), one) for one in compared if healthy(one.row))


def memory_score(done: Sequence[tuple[Study, list[Sides]]]) -> MemoryScores:
    """Of all studies together."""
    from foretell.validation.unseen_memory import memory_scores, unseen_peaks

    return memory_scores([one for study, sides in done for one in unseen_peaks(study, sides)])


def memory_lines(scores: MemoryScores, more: bool) -> list[str]:
    """By study and over all; with `more` by trainer and by source too."""
    if scores.all is None:
        return []
    lines = ["", _memory_table("memory, %", [*scores.studies, scores.all])]
    if more:
        lines += ["", _memory_table("by trainer", scores.trainers), "", _memory_table("by source", scores.sources)]
    return [
        *lines,
        "",
        "Absolute errors of printed memory, every source with the same weight: source:",
        "mean without it; median: of the same; bias: its median, with its sign; inside:",
        "share in the interval, whose widths the other sources taught.",
        *_widths(scores.widths),
    ]


def _widths(learnt: Mapping[str, float] | None) -> list[str]:
    """How wide the interval is by reason, as it ships and as all sources teach it."""
    if learnt is None:
        return []
    from foretell.oracle.memory_band import REASONS, WIDTHS

    rows = [
        [reason, *(f"{math.exp(one[reason]):.2f}" for one in (WIDTHS, learnt)), REASONS[reason]] for reason in learnt
    ]
    return ["", table(["width, times", "ships", "taught", "why"], rows)]


def _memory_table(title: str, scores: Sequence[MemoryScore]) -> str:
    rows = [
        [
            one.name,
            f"{one.sources:,}",
            f"{one.numbers:,}",
            *(
                f"{100 * size:{form}}"
                for size, form in zip(_errors_of(one), (".1f", ".1f", "+.1f", ".1f"), strict=True)
            ),
            f"{100 * one.inside:.0f}",
        ]
        for one in scores
    ]
    return table([title, "sources", "numbers", "source", "median", "bias", "in view", "inside"], rows)


def _errors_of(one: MemoryScore) -> tuple[float, float, float, float]:
    return one.unseen, one.median, one.bias, one.seen


def unseen_lines(scores: UnseenScores, more: bool) -> list[str]:
    """By study and over all; with `more` by trainer and by source too."""
    if scores.all is None:
        return []
    lines = [_table(HEADER[0], [*scores.studies, scores.all])]
    if more:
        lines += ["", _table("by trainer", scores.trainers), "", _table("by source", scores.sources)]
        lines += ["", _kinds(scores.kinds)] if scores.kinds else []
    return [
        *lines,
        "",
        "Mean absolute error of step times, every source with the same weight.",
        "rows: constants chosen again without a third of the source's rows at a time;",
        "source: without all of them; bias: its median, with its sign; anchor: the same",
        "after one run of the source corrected the others; in view: as they ship.",
        f"{scores.constants} constants were chosen with scored runs in view; {scores.staying} of them stay as they are",
        "without their sources, because no other software has a value for them.",
        "",
    ]


def _kinds(scores: Sequence[KindScore]) -> str:
    """Runs of all studies together, by what they are."""
    rows = [
        [
            one.name,
            f"{one.sources:,}",
            f"{one.runs:,}",
            *(f"{100 * size:.1f}" for size in (one.median, one.p90, one.by_source)),
            f"{100 * one.bias:+.1f}",
        ]
        for one in scores
    ]
    return table(["source left out, %", "sources", "runs", "median", "p90", "by source", "bias"], rows)


def _table(title: str, scores: Sequence[UnseenScore]) -> str:
    rows = [
        [
            one.name,
            f"{one.sources:,}",
            f"{one.runs:,}",
            f"{100 * one.scored:.0f}",
            f"{100 * one.rows:.1f}",
            f"{100 * one.unseen:.1f}",
            f"{100 * one.bias:+.1f}",
            "-" if one.anchored is None else f"{100 * one.anchored:.1f}",
            f"{100 * one.seen:.1f}",
        ]
        for one in scores
    ]
    return table([title, *HEADER[1:]], rows)
