"""foretell stack: measured steps of a cluster and its software, kept under a name: they correct predictions there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.notes import tell_notes
from foretell.cli.request_options import BATCH, MODEL, ON, OPTIMIZER, PLAN, SEQ, TRAINER, TRUST
from foretell.cli.table import fit, table
from foretell.errors import BadInput
from foretell.units import show_percent, show_seconds

if TYPE_CHECKING:
    from foretell.oracle.stacks import Stack

EXAMPLE = (
    "foretell stack my-cluster llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64 --anchor train.log"
)


class StackLine(msgspec.Struct, frozen=True, kw_only=True):
    """One measured step of a stack."""

    model: str
    plan: str
    cluster: str
    step_seconds: float
    file: str


class StackPage(msgspec.Struct, frozen=True, kw_only=True):
    """A kept stack: what was measured, and what it makes of runs of each trainer and device that it has."""

    name: str
    file: str
    runs: tuple[StackLine, ...]
    collectives: int  # that were timed
    says: tuple[StackFactors, ...]
    notes: tuple[str, ...]


class StackFactors(msgspec.Struct, frozen=True, kw_only=True):
    """Times as long as priced, expected of a run of another model on as many ranks as were measured most."""

    trainer: str
    device: str
    ranks: int
    computing: float
    messages: float
    host: float


@click.command("stack", short_help="Measured steps of your cluster, kept: --stack NAME corrects by them.")
@click.argument("name", required=False)
@MODEL
@ON
@PLAN
@BATCH
@SEQ
@TRAINER
@OPTIMIZER
@click.option("--anchor", multiple=True, metavar="FILE", help="Measurements: logs, records, traces, a table, a folder.")
@click.option("--calibration", metavar="FILE", default="", help="From `foretell calibrate`; or none (the kept one).")
@click.option("--forget", is_flag=True, help="Remove the stack.")
@TRUST
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    name: str | None, anchor: tuple[str, ...], calibration: str, forget: bool, as_json: bool, **words: Any
) -> None:
    """Keep measured steps under NAME, and show what is kept; without NAME, the stacks there are.

    MODEL, --plan and the others say what was run, where the files do not. New
    measurements are added to those that NAME has.
    """
    from foretell.oracle.kept_stacks import each, keep, kept_stack, path_of
    from foretell.oracle.kept_stacks import forget as removed

    if name is None:
        if anchor or forget:
            raise BadInput("no stack is named", where="NAME", fix=EXAMPLE)
        _list(list(each()), as_json)
        return
    if forget:
        click.echo(f"removed {removed(name)}")
        return
    if anchor:
        stack = _added(name, anchor, {key: value for key, value in words.items() if value}, calibration)
        keep(stack)
    else:
        stack = kept_stack(name, calibration)
    page = _page_of(stack, path_of(name))
    click.echo(msgspec.json.encode({"stacks": [page]}) if as_json else _page(page, stack))
    tell_notes(() if as_json else page.notes)


def _added(name: str, files: tuple[str, ...], words: dict[str, Any], calibration: str) -> Stack:
    """The stack with what was measured in its files, and before."""
    from foretell.oracle.anchors import measurements
    from foretell.oracle.kept_stacks import as_kept, names, path_of
    from foretell.oracle.stacks import Stack, added_to

    path_of(name)
    otherwise = {("cluster" if key == "on" else key): value for key, value in words.items()}
    if isinstance(otherwise.get("batch"), str):
        raise BadInput("a batch in tokens", where="--batch", fix="samples: --batch 64")
    before = as_kept(name) if name in names() else Stack(name=name, runs=())
    return added_to(before, [one for file in files for one in measurements(Path(file))], otherwise, calibration)


def _page_of(stack: Stack, path: Path) -> StackPage:
    from foretell.files import shown

    lines = (
        StackLine(
            model=str(run.asked["model"]),
            plan=str(run.asked["plan"]),
            cluster=str(run.asked["cluster"]),
            step_seconds=run.step_seconds,
            file=run.file,
        )
        for run in stack.runs
    )
    return StackPage(
        name=stack.name,
        file=shown(path),
        runs=tuple(lines),
        collectives=len(stack.sweeps),
        says=tuple(_factors(stack)),
        notes=(*stack.notes, *stack.doubts),
    )


def _factors(stack: Stack) -> list[StackFactors]:
    from collections import Counter

    from foretell.oracle.carried import RunTraits
    from foretell.oracle.stacks import says

    stacks = Counter((one.trainer, one.device) for one in stack.readings)
    found: list[StackFactors] = []
    for trainer, device in stacks:
        own = Counter(one.ranks for one in stack.readings if (one.trainer, one.device) == (trainer, device))
        ranks = max(own, key=lambda count: (own[count], count))
        c, m, h = says(stack, RunTraits(trainer, device, "", ranks, ())).factors
        found.append(StackFactors(trainer=trainer, device=device, ranks=ranks, computing=c, messages=m, host=h))
    return found


def _list(stacks: list[Stack], as_json: bool) -> None:
    from foretell.oracle.kept_stacks import path_of

    pages = [_page_of(one, path_of(one.name)) for one in stacks]
    if as_json:
        click.echo(msgspec.json.encode({"stacks": pages}))
        return
    if not pages:
        click.echo(f"no stack is kept; {EXAMPLE}")
        return
    rows = [[one.name, str(len(one.runs)), str(one.collectives), _where(one)] for one in pages]
    click.echo(table(["stack", "steps", "collectives", "trainer, device"], rows))


def _where(page: StackPage) -> str:
    return fit("; ".join(f"{one.trainer}, {one.device}" for one in page.says), 40)


SHOWN = 12
"""Measured steps that a page lists."""


def _page(page: StackPage, stack: Stack) -> str:
    lines = [f"stack {page.name}, in {page.file}"]
    if page.runs:
        rows = [
            [fit(one.model, 20), fit(one.plan, 34), fit(one.cluster, 10), show_seconds(one.step_seconds)]
            for one in page.runs[:SHOWN]
        ]
        lines.append(table(["model", "plan", "on", "measured"], rows))
    if len(page.runs) > SHOWN:
        lines.append(f"and {len(page.runs) - SHOWN} more")
    if page.collectives:
        lines.append(f"timed collectives: {page.collectives}")
    if page.says:
        factors = [
            [fit(one.trainer, 20), fit(one.device, 20), str(one.ranks)]
            + [show_percent(value - 1, sign=True) for value in (one.computing, one.messages, one.host)]
            for one in page.says
        ]
        head = ["over prediction, another model", "device", "ranks", "computing", "messages", "host"]
        lines.append(table(head, factors))
    return "\n\n".join(lines)
