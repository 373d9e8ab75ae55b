"""foretell why: why a plan loses to the best one, and what would make it win."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.request_options import JOB, SEARCH, asks, on_cluster, tell
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.request import Request

EXAMPLE = "foretell why llama3-8b --on 8xh100 --plan 'tp8 +bf16' --batch 64"


@click.command("why", short_help="Why a plan loses to the best one, and what would make it win.")
@asks(*JOB, click.option("--plan", metavar="TEXT", help="The plan you believe in: 'dp8:zero3 +bf16'."), *SEARCH)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, as_json: bool) -> None:
    """Why a plan for MODEL is refused, does not fit, or loses to the best plan.

    Prints the rules it breaks, or the memory it lacks; then the way to the best plan by
    single changes, with what each gains, and hardware on which it would win. The best
    plan has the same precision, and the same of what else the search does not vary.
    """
    from foretell.cli.compare_pages import why_page
    from foretell.cli.progress import Progress
    from foretell.oracle.planning import questions
    from foretell.oracle.why import why

    if request.plan is None:
        raise BadInput("no plan is given", where="--plan", fix=EXAMPLE)
    progress = Progress()
    (question,) = questions(on_cluster(request, EXAMPLE))
    found = why(question, progress.of)
    progress.end()
    tell(found, why_page, question, as_json)
