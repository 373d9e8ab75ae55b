"""foretell whatif: what other hardware, batches and sequences would do to a step."""

from __future__ import annotations

from typing import Any

import click

from foretell.cli.question_options import PRECISION, about, searched, tell, wanted
from foretell.errors import BadInput

EXAMPLE = "foretell whatif llama3-8b --on 8xh100 --plan best --batch 64"


@click.command("whatif", short_help="What other hardware, batches and sequences would do to a step.")
@about
@click.option("--plan", metavar="TEXT", default="best", help="The plan; best, the best there is (best).")
@PRECISION
@searched
@click.option("--again", is_flag=True, help="Also search for the best plan as things are, and where they are doubled.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(plan: str, again: bool, as_json: bool, **options: Any) -> None:
    """What a step of MODEL would be with one thing changed, and which upgrade pays.

    Links by level, bandwidth and latency, the compute rate, the bandwidth and size of
    memory, the batch and the sequence are changed one by one and predicted again.
    """
    from foretell.cli.compare_pages import whatif_page
    from foretell.cli.progress import Progress
    from foretell.oracle.trial import Trial
    from foretell.oracle.whatif import whatif

    if not plan.strip():
        raise BadInput("no plan is given", where="--plan", fix=EXAMPLE)
    question = wanted(options).question(EXAMPLE)
    chosen = None if plan.strip() == "best" else Trial(question).readable(plan)
    progress = Progress()
    found = whatif(question, chosen, again, progress.of)
    progress.end()
    tell(found, whatif_page, question, as_json)
