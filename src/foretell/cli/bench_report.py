"""What `foretell bench` writes besides: a page and its figures."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from foretell.bench.group import BenchGroup
    from foretell.bench.row import BenchRow
    from foretell.bench.study import BenchStudy
    from foretell.report.page import Page

Command = TypeVar("Command", bound=Callable[..., Any])


class ReportFiles(NamedTuple):
    """Files that are asked for; empty: none."""

    html: str = ""
    figures: str = ""

    def check(self, out: Path | None) -> None:
        """Refuse a page that cannot be written, before minutes of measuring. The folder `out` will be there by then."""
        from foretell.report.files import check_page

        if out is None or out.exists() or Path(self.html).parent != out:
            check_page(self.html or None)


REPORT = "report.html"
"""The page of a comparison in its folder, where no other is asked for."""


def reported(command: Command) -> Command:
    """The options of a report."""
    for option in (
        click.option("--figures", metavar="FOLDER", default="", help="Each figure as an SVG and a PNG file."),
        click.option(
            "--html",
            metavar="FILE",
            default="",
            help="A report: one file with charts (report.html in --out).",
        ),
    ):
        command = option(command)
    return command


def written(page: Page, files: ReportFiles) -> list[str]:
    """Write what is asked for; the names of the files."""
    from foretell.report.files import save, save_figures

    names: list[str] = []
    if files.html:
        save(page, files.html)
        names.append(files.html)
    if files.figures:
        for kind in ("svg", "png"):
            names += [f"{files.figures}/{name}" for name in save_figures(page, files.figures, kind)]
    return names


def study_files(found: BenchStudy, files: ReportFiles) -> list[str]:
    """The report of a study."""
    if files == ReportFiles():
        return []
    from foretell.bench.page import bench_page

    where = f"{found.about.machine}, {found.about.cores} cores"
    return written(
        bench_page(found.rows, f"Frameworks and strategies side by side on {where}", found.about.command), files
    )


def judged(rows: Sequence[BenchRow]) -> dict[str, Any]:
    """Why each row is slow, and what the survey's findings are worth here."""
    from foretell.bench.findings import check
    from foretell.bench.group import groups
    from foretell.bench.reasons import reasons

    slow = [
        {**one._asdict(), "engine": line.engine, **_place(group), "ranks": ranks}
        for group in groups(rows)
        for line in group.lines
        for ranks, row in line.rows.items()
        for one in reasons(row, group.reference(ranks), group.reference(1))
    ]
    found = [
        {
            "finding": one.finding.name,
            "text": one.finding.text,
            **_place(one.group),
            **one.verdict._asdict(),
        }
        for one in check(rows)
    ]
    return {"reasons": slow, "findings": found}


def _place(group: BenchGroup) -> dict[str, str]:
    return {"pair": group.pair, "device": group.device, "conditions": group.conditions}


def judged_page(rows: Sequence[BenchRow]) -> str:
    """The same for people: on the most ranks that each engine has."""
    from foretell.bench.findings import check
    from foretell.bench.group import groups
    from foretell.cli.table import folded_lines

    parts = [_slow(group) for group in groups(rows)]
    found = [
        folded_lines(f"  {one.verdict.status}  {one.finding.text} ({one.group.pair}: {one.verdict.evidence})")
        for one in check(rows)
    ]
    parts += ["\n".join(["what the survey of frameworks found, asked of these rows", *found])] if found else []
    return "\n\n".join(parts)


def _slow(group: BenchGroup) -> str:
    """Why each engine of a group is slow."""
    from foretell.bench.reasons import reasons, sentence
    from foretell.cli.table import WIDTH, folded_lines

    lines = [folded_lines(f"why it is slow: {group.told_conditions}")]
    wide = max(len(line.engine) for line in group.lines)
    for line in group.lines:
        most = max(line.rows)
        told = sentence(reasons(line.rows[most], group.reference(most), group.reference(1)))
        start = f"  {line.engine:<{wide}}  {most:>2}  "
        lines += textwrap.wrap(told, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(lines)
