"""foretell report: one HTML file that can be mailed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from foretell.cli.inputs import Given, planned
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.scale import Scaling
    from foretell.report.page import Page

EXAMPLE = "foretell report llama3-8b --on 16xh100 --batch 64 --html report.html"


@click.command("report", short_help="One HTML file about a plan, or the best one.")
@planned
@click.option("--html", metavar="FILE", default="report.html", help="The file (report.html).")
@click.option("--svg", metavar="FOLDER", help="Also: each figure as a file, for papers.")
@click.option("--png", metavar="FOLDER", help="The same as pixels, three times as fine as a screen.")
@click.option("--gpus", metavar="LOW..HIGH", help="Also: how strategies scale over numbers of GPUs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(given: Given, html: str, svg: str | None, png: str | None, gpus: str | None, as_json: bool) -> None:
    """Write a page about MODEL under a plan; without --plan, under the best one.

    One file with its charts inside. It needs no network: mail it, print it, open it
    in any browser. The charts are told to screen readers and reached by keyboard.
    """
    from foretell.cli.plan_pages import folded
    from foretell.report.files import save, save_figures

    if given.cluster is None:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    page = _page(given, gpus)
    size = save(page, html)
    folders = [(folder, kind) for folder, kind in ((svg, "svg"), (png, "png")) if folder is not None]
    figures = [(folder, name) for folder, kind in folders for name in save_figures(page, folder, kind)]
    if as_json:
        told = {
            "file": html,
            "bytes": size,
            "title": page.title,
            "plan": page.plan,
            "figures": [name for _, name in figures],
        }
        click.echo(msgspec.json.encode(told))
        return
    click.echo(folded(f"{html}: {page.title}", 2))
    for folder, name in figures:
        click.echo(f"{folder}/{name}")


def _page(given: Given, gpus: str | None) -> Page:
    from foretell.cli.reports import plan_page, step_page
    from foretell.report.sections import scaling_section

    more = (scaling_section(_scaling(given, gpus)),) if gpus is not None else ()
    if given.plan is None:
        from foretell.oracle.planning import answered, asked

        answer = answered(asked(given.model, given.cluster or "", given.batch, given.batch_per_rank,
                                trainer=given.trainer, optimizer=given.optimizer, seq=given.seq)[0])  # fmt: skip
        if answer.found.best is None:
            raise BadInput(
                f"no plan fits {given.model} on {given.cluster}", where="--on", fix="foretell plan says what would"
            )
        return plan_page(answer, more)
    from foretell.cli.evidence_options import Known
    from foretell.cli.evidence_options import answered as predicted
    from foretell.oracle.training import STEP_ALONE

    question, found = predicted(given, Known(), STEP_ALONE)
    assert question.cluster is not None
    return step_page(question.setting, question.cluster, found, question.notes, more)


def _scaling(given: Given, gpus: str) -> Scaling:
    from foretell.cli.plan_questions import counts
    from foretell.oracle.planning import asked
    from foretell.oracle.scale import scale

    question = asked(given.model, given.cluster or "", given.batch, given.batch_per_rank, trainer=given.trainer,
                     optimizer=given.optimizer, seq=given.seq)[0]  # fmt: skip
    return scale(question, counts(gpus), given.batch_per_rank or 0)
