"""Pages of `foretell validate --coverage`: do bands hold for sources that they were not learnt from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli.table import table

if TYPE_CHECKING:
    from foretell.oracle.bands import Widths
    from foretell.validation.coverage import Coverage
    from foretell.validation.evaluate import ComparedRun
    from foretell.validation.study import Study


def answer_coverage(done: list[tuple[Study, list[ComparedRun]]], learn: Path | None, as_json: bool) -> None:
    """Learn bands from these runs, tell how they hold, and write them where asked."""
    import msgspec

    from foretell.errors import BadInput
    from foretell.oracle import similar
    from foretell.validation.coverage import coverage, grouped, residuals

    found = [one for study, compared in done for one in residuals(study.family, study.name, compared)]
    if len({one.source for one in found}) < LEAST_SOURCES:
        raise BadInput(
            "too few sources to leave one out", where="--coverage", fix="all studies: foretell validate --coverage"
        )
    learnt = coverage(found)
    if learn is not None:
        learn.write_bytes(msgspec.json.format(msgspec.json.encode(learnt.bands), indent=1) + b"\n")
        lines = b",\n".join(msgspec.json.encode(one) for one in grouped(found))
        learn.with_name(similar.FILE.name).write_bytes(b"[\n" + lines + b"\n]\n")
    click.echo(msgspec.json.encode(learnt).decode() if as_json else _page(learnt))


LEAST_SOURCES = 3


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
        *_widths("a prediction", "runs", found.bands.predicted),
        "",
        *_widths("a prediction that a measured run corrects", "pairs of runs", found.bands.anchored),
    ]
    return "\n".join(lines)


def _widths(title: str, examples: str, found: Widths) -> list[str]:
    factors = found.factors(found.widths)
    rows = [[reason, f"{factors.get(reason, 1.0):.2f}"] for reason in found.widths]
    return [table([title, "factor"], rows), f"from {found.runs:,} {examples} of {found.sources} sources"]
