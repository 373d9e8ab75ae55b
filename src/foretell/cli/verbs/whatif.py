"""foretell whatif: what other hardware, batches and sequences would do to a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.request_options import JOB, PRECISION, SEARCH, asks, on_cluster, tell

if TYPE_CHECKING:
    from foretell.oracle.request import Request

EXAMPLE = "foretell whatif llama3-8b --on 8xh100 --plan best --batch 64"


def _not_best(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    return None if text is None or text.strip() == "best" else text


@click.command("whatif", short_help="What other hardware, batches and sequences would do to a step.")
@asks(
    *JOB,
    click.option("--plan", metavar="TEXT", callback=_not_best, help="The plan; best: the best there is (best)."),
    PRECISION,
    *SEARCH,
)
@click.option("--again", is_flag=True, help="Also search for the best plan with each thing doubled.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, again: bool, as_json: bool) -> None:
    """What a step of MODEL would be with one thing changed, and which upgrade pays.

    Bandwidth and latency of the links of each level, the compute rate, bandwidth and size
    of memory, the batch and the sequence length are changed one at a time.
    """
    from foretell.cli.compare_pages import whatif_page
    from foretell.cli.progress import Progress
    from foretell.oracle.planning import questions
    from foretell.oracle.whatif import whatif

    (question,) = questions(on_cluster(request, EXAMPLE))
    progress = Progress()
    found = whatif(question, again, progress.of)
    progress.end()
    tell(found, whatif_page, question, as_json)
