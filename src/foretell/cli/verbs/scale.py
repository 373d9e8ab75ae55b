"""foretell scale: time, efficiency and memory of each strategy over numbers of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.request_options import JOB, PRECISION, SEARCH, asks, on_cluster, tell
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.request import Request

EXAMPLE = "foretell scale resnet50 --on v100-16 --gpus 1..64 --batch 256"


@click.command("scale", short_help="Time, efficiency and memory of each strategy over numbers of GPUs.")
@asks(
    *JOB,
    click.option("--batch-per-rank", type=int, metavar="N", help="Batch of each data-parallel rank (weak scaling)."),
    click.option("--gpus", metavar="LOW..HIGH", help="Numbers of GPUs, doubling: 1..4096; or 4,12,24."),
    PRECISION,
    *SEARCH,
)
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, gpus: str | None, html: str | None, as_json: bool) -> None:
    """How MODEL scales over numbers of GPUs: the best plan, and each strategy.

    The best plan of each number of GPUs is what the search of `foretell plan` finds.
    Beside it: a line for each ZeRO stage, each other strategy, and data parallelism with
    each of these. With --batch the batch stays the same (strong scaling),
    with --batch-per-rank it grows with the data-parallel ranks (weak scaling).
    """
    from foretell.cli.plan_questions import counts
    from foretell.cli.progress import Progress
    from foretell.cli.scale_pages import scale_page
    from foretell.oracle.scale import scale
    from foretell.report.files import check_page

    check_page(html)
    if gpus is None:
        raise BadInput("no numbers of GPUs are given", where="--gpus", fix=EXAMPLE)
    progress = Progress()
    found = scale(on_cluster(request, EXAMPLE), counts(gpus), progress.of)
    progress.end()
    if html is not None:
        from foretell.report.files import save
        from foretell.report.sections import scaling_page

        save(scaling_page(found), html)
    tell(found, scale_page, request, as_json)
