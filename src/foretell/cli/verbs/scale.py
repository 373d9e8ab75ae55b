"""foretell scale: time, efficiency and memory of each strategy over numbers of GPUs."""

from __future__ import annotations

from typing import Any

import click

from foretell.cli.question_options import PRECISION, about, searched, tell, wanted
from foretell.errors import BadInput

EXAMPLE = "foretell scale resnet50 --on v100-16 --gpus 1..64 --batch 256"


@click.command("scale", short_help="Time, efficiency and memory of each strategy over numbers of GPUs.")
@about
@click.option("--batch-per-rank", type=int, metavar="N", help="Weak: samples for each rank that splits the batch.")
@click.option("--gpus", metavar="LOW..HIGH", help="Numbers of GPUs, doubling: 1..4096; or 4,12,24.")
@PRECISION
@searched
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(batch_per_rank: int | None, gpus: str | None, html: str | None, as_json: bool, **options: Any) -> None:
    """How each strategy scales MODEL over numbers of GPUs.

    A line for each way to store along data ranks, each other strategy, and data ranks
    with each of these. With --batch the batch stays the same (strong scaling), with
    --batch-per-rank it grows with the ranks that split it (weak scaling).
    """
    from foretell.cli.plan_questions import counts
    from foretell.cli.progress import Progress
    from foretell.cli.scale_pages import scale_page
    from foretell.oracle.scale import scale

    if gpus is None:
        raise BadInput("no numbers of GPUs are given", where="--gpus", fix=EXAMPLE)
    asked = wanted(options)
    question = asked.questions(EXAMPLE, batch_per_rank)[0]
    progress = Progress()
    found = scale(question, counts(gpus), batch_per_rank or 0, progress.of)
    progress.end()
    if html is not None:
        from foretell.report.files import save
        from foretell.report.sections import scaling_page

        save(scaling_page(found), html)
    tell(found, scale_page, question, as_json)
