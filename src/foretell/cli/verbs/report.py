"""foretell report: one HTML file that can be mailed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from foretell.cli.main import NOTHING_FITS
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
@click.option("--picture", metavar="FILE", help="Also: one picture (.svg, .png), for a README or a slide.")
@click.option("--gpus", metavar="LOW..HIGH", help="Also: how strategies scale over numbers of GPUs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    request: Request,
    html: str,
    svg: str | None,
    png: str | None,
    picture: str | None,
    gpus: str | None,
    as_json: bool,
) -> None:
    """Write a page about MODEL under a plan; without --plan, under the best one.

    One file with its charts inside. It needs no network: mail it, print it, open it
    in any browser. The charts work with screen readers and the keyboard.
    The exit code is 1 if the plan does not fit in memory.
    """
    from foretell.cli.table import folded
    from foretell.report.files import check_drawing, save, save_drawing, save_figures
    from foretell.report.poster import poster

    if picture is not None:
        check_drawing(Path(picture), "--picture")
    page, fits = _page(on_cluster(request, EXAMPLE), gpus)
    size = save(page, html)
    folders = [(folder, kind) for folder, kind in ((svg, "svg"), (png, "png")) if folder is not None]
    figures = [(folder, name) for folder, kind in folders for name in save_figures(page, folder, kind)]
    if picture is not None:
        save_drawing(poster(page), Path(picture), "--picture", paper=True)
    if as_json:
        told = {
            "file": html,
            "bytes": size,
            "title": page.title,
            "plan": page.plan,
            "figures": [name for _, name in figures],
            "picture": picture or "",
        }
        click.echo(msgspec.json.encode(told))
    else:
        click.echo(folded(f"{html}: {page.title}", 2))
        for file in [*(f"{folder}/{name}" for folder, name in figures), *([picture] if picture is not None else [])]:
            click.echo(file)
    if not fits:
        raise click.exceptions.Exit(NOTHING_FITS)


def _page(request: Request, gpus: str | None) -> tuple[Page, bool]:
    """The page, and whether its plan fits in memory."""
    from foretell.report.sections import scaling_section
    from foretell.report.step_page import plan_page, step_page

    more = (scaling_section(_scaling(request, gpus)),) if gpus is not None else ()
    if request.plan is None:
        from foretell.oracle.planning import questions
        from foretell.oracle.recommend import recommended_answer

        answer = recommended_answer(questions(request)[0])
        if answer.found.best is None:
            what = f"no plan fits {request.model} on {request.place.text}"
            raise BadInput(what, where="--on", fix="foretell plan lists plans that do")
        return plan_page(answer, more), True
    from foretell.oracle.predicted import predicted

    asked, found = predicted(request)
    return step_page(asked.setting, asked.place, found, asked.notes, more), found.fits


def _scaling(request: Request, gpus: str) -> Scaling:
    from foretell.cli.plan_questions import counts
    from foretell.oracle.scale import scale

    return scale(request, counts(gpus))
