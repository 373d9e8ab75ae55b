"""foretell report: one HTML file that can be mailed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from foretell.cli.request_options import ONE_PLAN, asks, on_cluster
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.request import Request
    from foretell.oracle.scale import Scaling
    from foretell.report.page import Page

EXAMPLE = "foretell report llama3-8b --on 16xh100 --batch 64 --html report.html"


@click.command("report", short_help="One HTML file about a plan, or the best one.")
@asks(*ONE_PLAN)
@click.option("--html", metavar="FILE", default="report.html", help="The file (report.html).")
@click.option("--svg", metavar="FOLDER", help="Also: each figure as a file, for papers.")
@click.option("--png", metavar="FOLDER", help="The same as PNG, at three times screen resolution.")
@click.option("--gpus", metavar="LOW..HIGH", help="Also: how strategies scale over numbers of GPUs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, html: str, svg: str | None, png: str | None, gpus: str | None, as_json: bool) -> None:
    """Write a page about MODEL under a plan; without --plan, under the best one.

    One file with its charts inside. It needs no network: mail it, print it, open it
    in any browser. The charts work with screen readers and the keyboard.
    """
    from foretell.cli.table import folded
    from foretell.report.files import save, save_figures

    page = _page(on_cluster(request, EXAMPLE), gpus)
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


def _page(request: Request, gpus: str | None) -> Page:
    from foretell.report.sections import scaling_section
    from foretell.report.step_page import plan_page, step_page

    more = (scaling_section(_scaling(request, gpus)),) if gpus is not None else ()
    if request.plan is None:
        from foretell.oracle.planning import answered, questions

        answer = answered(questions(request)[0])
        if answer.found.best is None:
            what = f"no plan fits {request.model} on {request.place.text}"
            raise BadInput(what, where="--on", fix="foretell plan says what would")
        return plan_page(answer, more)
    from foretell.oracle.predicted import predicted

    asked, found = predicted(request)
    return step_page(asked.setting, asked.place, found, asked.notes, more)


def _scaling(request: Request, gpus: str) -> Scaling:
    from foretell.cli.plan_questions import counts
    from foretell.oracle.scale import scale

    return scale(request, counts(gpus))
