"""foretell why: why a plan loses to the best one, and what would make it win."""

from __future__ import annotations

from typing import Any

import click

from foretell.cli.question_options import about, searched, tell, wanted
from foretell.errors import BadInput

EXAMPLE = "foretell why llama3-8b --on 8xh100 --plan 'tp8 +bf16' --batch 64"


@click.command("why", short_help="Why a plan loses to the best one, and what would make it win.")
@about
@click.option("--plan", metavar="TEXT", help="The plan you believe in: 'dp8:zero3 +bf16'.")
@searched
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(plan: str | None, as_json: bool, **options: Any) -> None:
    """Why a plan for MODEL is refused, does not fit, or loses to the best plan there is.

    The rules it breaks with their numbers, or the bytes it is short of; then the way
    from it to the best plan by single changes with what each gains, and the least
    better hardware on which it would win. The best is of the plan's own precision
    and of what else the search does not vary.
    """
    from foretell.cli.compare_pages import why_page
    from foretell.cli.progress import Progress
    from foretell.oracle.why import why
    from foretell.plan.text import parse

    if plan is None or not plan.strip():
        raise BadInput("no plan is given", where="--plan", fix=EXAMPLE)
    progress = Progress()
    question = wanted(options).question(EXAMPLE)
    found = why(question, parse(plan), progress.of)
    progress.end()
    tell(found, why_page, question, as_json)
