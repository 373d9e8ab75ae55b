"""foretell capacity: what a step holds in tensors, on devices whose step time nobody measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.parts import largest_first, parts_table
from foretell.cli.request_options import (
    BATCH,
    BATCH_PER_RANK,
    FROM_CONFIG,
    MODEL,
    OPTIMIZER,
    PLAN,
    SEQ,
    TRAINER,
    asks,
    under_plan,
)
from foretell.cli.table import folded
from foretell.errors import BadInput
from foretell.oracle.part_names import part_name
from foretell.units import show_bytes, show_of

if TYPE_CHECKING:
    from foretell.oracle.capacity import Capacity
    from foretell.oracle.request import Request

EXAMPLE = "foretell capacity llama3-8b --on 16xtpu-v5p --plan 'dp16:zero3 +bf16' --batch 16"


@click.command("capacity", short_help="Memory alone, on TPU, Trainium and Gaudi.")
@asks(MODEL, FROM_CONFIG, PLAN, BATCH, BATCH_PER_RANK, SEQ, TRAINER, OPTIMIZER)
@click.option("--on", "place", metavar="DEVICES", help="How many of which: 16xtpu-v5p, 8xgaudi3.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, place: str | None, as_json: bool) -> None:
    """Parameters, states, activations and their peak on devices without a measured trainer.

    Step times on them are not answered. The exit code is 1 if the tensors alone
    do not fit. Devices: foretell list capacities.
    """
    from foretell.oracle.capacity import capacity

    if place is None:
        raise BadInput("no devices are given", where="--on", fix=EXAMPLE)
    found = capacity(under_plan(request), place)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found))
    else:
        click.echo(_page(found))
        tell_notes(found.notes)
    if not found.fits:
        raise click.exceptions.Exit(NOTHING_FITS)


def _page(found: Capacity) -> str:
    room = show_of(found.tensor_bytes, found.memory_bytes)
    told = "the tensors fit" if found.fits else "DOES NOT FIT, by tensors alone"
    lines = [
        ("model", f"{found.model}, {found.parameters:,} parameters"),
        ("plan", found.plan),
        ("on", f"{found.ranks} x {found.device} ({found.title})"),
        ("batch", f"{found.batch:,} a step, micro-batch size {found.micro_batch}"),
        ("tensors", f"{room} of the device: {told}"),
        ("", f"peak during {found.peak_moment}"),
        ("step", f"not answered: {found.reason}"),
    ]
    parts = largest_first({part_name(kind): size for kind, size in found.by_kind.items()}, 1.0)
    page = [folded(text, 14, f"{name:<14}") for name, text in lines]
    return "\n".join([*page, "", parts_table("tensors, worst rank", parts, found.tensor_bytes, show_bytes)])
