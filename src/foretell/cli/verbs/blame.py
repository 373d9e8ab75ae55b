"""foretell blame: traces of real steps against the predicted timeline, and whose fault the difference is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.notes import tell_notes
from foretell.cli.request_options import (
    BATCH,
    BATCH_PER_RANK,
    CALIBRATION,
    ON,
    OPTIMIZER,
    PLAN,
    SEQ,
    STACK,
    TRAINER,
    TRUST,
)
from foretell.cli.table import fit, folded, table
from foretell.errors import BadInput
from foretell.units import show_percent, show_seconds

if TYPE_CHECKING:
    from foretell.oracle.blame import Blame, BlamedCause

EXAMPLE = "foretell blame rank*.json --model llama3-8b --on 8xh100 --plan 'dp8:zero3 +bf16' --batch 16"

WORDS = ("on", "plan", "batch", "batch_per_rank", "seq", "optimizer", "stack", "calibration")


@click.command("blame", short_help="Traces of real steps: whose fault the lost seconds are.")
@click.argument("traces", nargs=-1, type=click.Path(dir_okay=False), metavar="TRACE...")
@click.option("--model", metavar="NAME", default="", help="What was trained: the step is held against its prediction.")
@ON
@PLAN
@BATCH
@BATCH_PER_RANK
@SEQ
@TRAINER
@OPTIMIZER
@CALIBRATION
@STACK
@click.option("--against", multiple=True, metavar="FILE", help="Traces of a run that was well, instead.")
@click.option("--price", type=click.FloatRange(min=0), default=0.0, metavar="P", help="Of a GPU for an hour.")
@TRUST
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    traces: tuple[str, ...], model: str, against: tuple[str, ...], price: float, as_json: bool, **words: Any
) -> None:
    """Whose fault it is that steps take longer: clocks, the host, a kernel, a collective, a slow rank.

    TRACE is a file of torch.profiler (Kineto) of each rank, or an export of
    Nsight Systems (SQLite, or its table cuda_gpu_trace). Held against a
    prediction (--model), traces of a good run (--against), or with neither the
    ranks against the fastest of them.
    """
    from foretell.oracle.blamed import blamed
    from foretell.oracle.request import read

    if not traces:
        raise BadInput("no trace is given", where="TRACE", fix=EXAMPLE)
    request = None
    if model:
        request = read(
            model=model, trainer=words.pop("trainer"), **{key: words[key] for key in WORDS if words.get(key)}
        )
        if request.cluster is None or request.plan is None:
            raise BadInput("no plan or no cluster is given", where="--plan, --on", fix=EXAMPLE)
    elif any(words.get(key) for key in WORDS):
        raise BadInput("a plan or a cluster without a model", where="--model", fix=EXAMPLE)
    found = blamed([Path(one) for one in traces], request, [Path(one) for one in against], price)
    click.echo(msgspec.json.encode(found) if as_json else _page(found, price))
    tell_notes(() if as_json else found.notes)


def _page(found: Blame, price: float) -> str:
    from foretell.oracle.blame import PREDICTED, SAID

    ranks = (
        f"{found.ranks} rank{'s' if found.ranks > 1 else ''}, {found.steps} step{'s' if found.steps > 1 else ''} each"
    )
    lines = [f"measured  {show_seconds(found.measured)} a step, {ranks}"]
    if found.expected:
        name = "predicted" if found.against == PREDICTED else "before   "
        more = show_percent(found.measured / found.expected - 1, sign=True)
        lines.append(f"{name} {show_seconds(found.expected)} a step: {more}")
    else:
        lines.append("against   the fastest rank, kernel by kernel")
    if not found.causes:
        return "\n".join([*lines, "nothing takes notably longer than it should"])
    rows = [_row(one, found, price) for one in found.causes]
    head = ["cause", "", "of a step", "share", "times"] + (["1,000 steps"] if price else [])
    first = found.first
    why = [folded(f"{first.cause}: {SAID[first.cause]}", 2)] if first else []
    return "\n".join([*lines, "", table(head, rows), "", *why])


def _row(one: BlamedCause, found: Blame, price: float) -> list[str]:
    where = "all ranks" if one.rank is None else f"rank {one.rank}"
    what = fit(f"{one.what}, {where}" if one.what else where if one.cause != "not explained" else "", 34)
    row = [one.cause, what, show_seconds(one.seconds), show_percent(one.seconds / found.measured)]
    return [*row, f"{one.times:.2f}" if one.times else "-", *([f"{one.cost:,.2f}"] if price else [])]
