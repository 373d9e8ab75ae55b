"""Pages of `foretell validate --coverage`: do bands hold for sources that they were not learnt from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli.table import table

if TYPE_CHECKING:
    from foretell.oracle.bands import Widths
    from foretell.oracle.carried import EffectSpread
    from foretell.oracle.ratios import RatioWidths
    from foretell.validation.anchors import AnchorScores
    from foretell.validation.coverage import Coverage
    from foretell.validation.ratios import RatioCoverage
    from foretell.validation.sides import Sides
    from foretell.validation.study import Study


def answer_coverage(from_all_sides: list[tuple[Study, list[Sides]]], learn: Path | None, as_json: bool) -> None:
    """Learn bands from these runs, tell how they hold, and write them where asked."""
    import msgspec

    from foretell.errors import BadInput
    from foretell.files import save
    from foretell.oracle import ratios, similar
    from foretell.oracle.bands import ANCHORED_FILE
    from foretell.validation.coverage import coverage, grouped, residuals
    from foretell.validation.ratios import measured_pairs
    from foretell.validation.unseen import unseen_runs
    from foretell.validation.widths import LEAST_SOURCES

    done = [(study, [one.seen for one in sides]) for study, sides in from_all_sides]
    found = [one for study, compared in done for one in residuals(study.family, study.name, compared)]
    if len({one.source for one in found}) < LEAST_SOURCES:
        raise BadInput(
            "too few sources to leave one out", where="--coverage", fix="all studies: foretell validate --coverage"
        )
    pairs = [pair for study, compared in done for pair in measured_pairs(study.family, study.name, compared)]
    runs = [run for study, sides in from_all_sides for run in unseen_runs(study, sides)]
    learnt = coverage(found, pairs, runs)
    if learn is not None:
        save(learn, msgspec.json.format(msgspec.json.encode(learnt.bands), indent=1) + b"\n", "bands")
        if learnt.anchors is not None:
            after = msgspec.json.format(msgspec.json.encode(learnt.anchors.widths), indent=1)
            save(learn.with_name(ANCHORED_FILE.name), after + b"\n", "bands")
        if learnt.ratios is not None:
            widths = msgspec.json.format(msgspec.json.encode(learnt.ratios.widths), indent=1)
            save(learn.with_name(ratios.FILE.name), widths + b"\n", "ratios")
        lines = b",\n".join(msgspec.json.encode(one) for one in grouped(found))
        save(learn.with_name(similar.FILE.name), b"[\n" + lines + b"\n]\n", "residuals")
    click.echo(msgspec.json.encode(learnt).decode() if as_json else _page(learnt))


def _page(found: Coverage) -> str:
    rows = [
        [name, f"{one.runs:,}", f"{one.inside:.0%}", f"{one.band:.2f}", f"{one.bias:.2f}"]
        for name, one in sorted(found.sources.items(), key=lambda item: -item[1].runs)
    ]
    lines = [
        "each source tried with intervals learnt from the others",
        table(["source", "runs", "inside", "band", "measured / predicted"], rows),
        "",
        f"inside: {found.inside:.1%} of {found.runs:,} runs (nine in ten are claimed)",
        f"        {found.healthy:.1%} without those that met a fault of their cluster",
        f"        {found.by_source:.1%} in the mean over {len(found.sources)} sources",
        "",
        *_parts(found),
        *_widths("a prediction", "runs", found.bands.predicted),
        "",
        *(anchor_lines(found.anchors) if found.anchors is not None else []),
        *_spread(found.bands.carried),
        *(["", *ratio_lines(found.ratios)] if found.ratios is not None else []),
    ]
    return "\n".join(lines)


def _parts(found: Coverage) -> list[str]:
    """By trainer, kind of plan and scale, where there are runs enough."""
    lines: list[str] = []
    for kind, parts in found.parts.items():
        rows = [
            [name, f"{one.runs:,}", f"{one.inside:.0%}", f"{one.band:.2f}", f"{one.bias:.2f}"]
            for name, one in parts.items()
        ]
        lines += [table([kind, "runs", "inside", "band", "measured / predicted"], rows), ""]
    return lines


def _widths(title: str, examples: str, found: Widths) -> list[str]:
    factors = found.factors(dict.fromkeys(found.widths, 1.0))
    rows = [[reason, f"{factors.get(reason, 1.0):.2f}"] for reason in found.widths]
    lines = [table([title, "factor"], rows), f"from {found.runs:,} {examples} of {found.sources} sources"]
    each = [[name or "all software", f"{own:.2f}"] for name, own in sorted(found.software.items())]
    return [*lines, "", table(["their logarithms times", ""], each)] if each else lines


def anchor_lines(found: AnchorScores) -> list[str]:
    """What one measured run does for others of its source: their errors, and their intervals."""
    rows = [
        [
            name,
            f"{one.pairs:,}",
            f"{one.sources}",
            f"{100 * one.before:.1f}",
            f"{100 * one.after:.1f}",
            f"{one.inside_before:.0%}",
            f"{one.inside:.0%}",
            f"{one.of_shipped:.2f}",
            f"{one.of_needed:.2f}",
        ]
        for name, one in found.likeness.items()
    ]
    header = ["shared with one run", "pairs", "sources", "error", "after", "in", "after", "width", "needed"]
    return [
        table(header, rows),
        "shared: setting is precision and axes, scale the ranks within a doubling; all of",
        "one trainer and device until another is named.",
        "error: mean, of runs whose source was left out; in: inside the interval that",
        "ships, and inside that after the run; width: of this one over that which ships;",
        "needed: over one that holds nine in ten without the run, learnt in the same way",
        "",
        *_widths("a prediction that a measured run corrects", "pairs of runs", found.widths),
        "",
    ]


def _spread(found: EffectSpread) -> list[str]:
    """How far the effects go that runs of one stack share."""
    effects = {
        "device, on computing": found.device,
        "model, on computing": found.model,
        "links, on messages": found.links,
        "trainer, on the host": found.host,
        "scale, on all": found.scale,
        "kind of plan, on all": found.axes,
        "one run, on all": found.run,
    }
    rows = [[name, f"{math.exp(math.sqrt(variance)):.2f}"] for name, variance in effects.items()]
    return [
        table(["what runs of a stack share", "factor"], rows),
        f"runs of two trainers share {found.trainer:.0%} of it",
    ]


def ratio_lines(found: RatioCoverage) -> list[str]:
    """How well the ratio of two plans on one stack is known."""
    from foretell.validation.ratios import CONTENDER

    rows = [
        [name, f"{one.pairs:,}", f"{one.inside:.0%}", f"{one.factor:.2f}", f"{one.error:.2f}"]
        for name, one in sorted(found.sources.items(), key=lambda item: -item[1].pairs)
    ]
    order = [
        [
            f"{one.above:.0%} to {one.up_to:.0%}",
            f"{one.pairs:,}",
            f"{one.right / one.pairs:.0%}",
            f"{one.told} ({one.told_right})",
        ]
        for one in found.widths.order
    ]
    simplest = found.simplest
    return [
        f"two plans of one sweep, both predicted within {CONTENDER:.0%} of its fastest: the ratio of",
        "their steps, each source tried with what the others taught",
        table(["source", "pairs", "inside", "factor", "median error"], rows),
        "",
        f"inside: {found.inside:.1%} of {found.pairs:,} pairs of {found.sweeps} sweeps (nine in ten are claimed)",
        f"        {found.with_fastest:.1%} of those with the plan predicted fastest",
        f"        {found.by_source:.1%} in the mean over {len(found.sources)} sources",
        "",
        table(["predicted apart", "pairs", "order right", "told apart (right)"], order),
        "",
        *_differences(found.widths),
        "",
        f"the simplest plan that cannot be told from the fastest, predicted at most {simplest.at_most:.0%}",
        f"  slower: another plan in {simplest.simpler} of {simplest.sweeps} sweeps, as fast or faster in",
        f"  {simplest.as_fast}, {simplest.mean:+.1%} in the mean, {simplest.worst:+.1%} at worst",
    ]


def _differences(found: RatioWidths) -> list[str]:
    factors, known = found.ratio.factors(dict.fromkeys(found.ratio.widths, 1.0)), found.evidence
    rows = [
        [
            name,
            f"{factors.get(name, 1.0):.2f}",
            f"{known[name].pairs:,}",
            str(known[name].alone),
            str(known[name].sources),
        ]
        for name in found.ratio.widths
    ]
    return [table(["two plans differ in", "factor", "pairs", "in that alone", "sources"], rows)]
