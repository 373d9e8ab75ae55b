"""foretell diff: where two plans differ, and what each difference costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.request_options import JOB, asks, on_cluster, tell

if TYPE_CHECKING:
    from foretell.oracle.request import Request

EXAMPLE = "foretell diff llama3-8b --on 8xh100 --batch 64 'dp8:zero3 +bf16' 'dp2:zero3 tp4:sp +bf16'"


@click.command("diff", short_help="Where two plans differ, and what each difference costs.")
@asks(*JOB)
@click.argument("plan1")
@click.argument("plan2")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, plan1: str, plan2: str, as_json: bool) -> None:
    """Where PLAN1 and PLAN2 differ for MODEL, and what each difference costs.

    Prints time and memory side by side, and a way from the first to the second by single
    changes, each of them predicted.
    """
    from foretell.cli.compare_pages import diff_page
    from foretell.oracle.diff import diff
    from foretell.oracle.planning import questions
    from foretell.oracle.request import read_plan

    (question,) = questions(on_cluster(request, EXAMPLE))
    found = diff(question, read_plan(plan1, "PLAN1"), read_plan(plan2, "PLAN2"))
    tell(found, diff_page, question, as_json)
