"""foretell calibrate: what this machine really does, as a record that predictions use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.measuring import StatusLine, needs_torch
from foretell.cli.stopping import telling
from foretell.cli.table import fit, folded_lines, table

if TYPE_CHECKING:
    from foretell.cost.samples import Calibration, SampleFit

WORDS = 3
"""Kinds with more words are variants of these, which the page leaves out."""


@click.command("calibrate", short_help="Measure this machine, for narrower predictions.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="What to measure (a GPU, if there is one).")
@click.option("--quick", is_flag=True, help="A few cases of each kind: seconds instead of minutes.")
@click.option("--only", multiple=True, metavar="PROBE", help="Only these: matmul, launch, collectives ...")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The record's file (kept with the others)."
)
@click.option("--resume", is_flag=True, help="Continue a calibration that was stopped.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="N",
    help="Stop after this long; --resume goes on.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    device: str | None,
    quick: bool,
    only: tuple[str, ...],
    out: Path | None,
    resume: bool,
    minutes: float,
    as_json: bool,
) -> None:
    """Measure this machine, for narrower predictions.

    Times matrix products, convolutions, attention, memory-bound kernels, normalisations,
    the loss, optimizers, launches, copies, the allocator and, with several ranks,
    collectives. `foretell predict --calibration FILE` uses the record; without --out it
    is kept, and found automatically.
    """
    if out is not None:
        from foretell.files import check_file

        check_file(out, "--out")
    needs_torch("measuring this machine")
    from foretell.calibration.measure import Wanted, chosen, journal_of, measure

    kind = device or chosen()
    words = tuple(word for text in only for word in text.replace(",", " ").split())
    wanted = Wanted(kind, quick, words, minutes, resume)
    line = StatusLine()
    try:
        with telling(lambda: _until_then(journal_of(wanted, out))):
            done = measure(wanted, out, line.watch)
    finally:
        line.end()
    if as_json:
        click.echo(_json(done.found, done.path, done.failed))
        return
    click.echo(_page(done.found, done.path))
    for case, problem in done.failed.items():
        print(f"note: not measured: {fit(f'{case}: {problem}', 200)}", file=sys.stderr)


def _until_then(journal: Path) -> tuple[str, str]:
    """What was saved of a calibration that is interrupted, and how to go on."""
    samples = journal.read_bytes().count(b"\n") - 1 if journal.is_file() else 0
    if samples < 1:
        return "nothing was measured yet", ""
    return f"{samples:,} samples are kept in {journal}", "the same command with --resume"


def _page(found: Calibration, out: Path) -> str:
    machine = found.machine
    unit = "core" if machine.kind == "cpu" else "device"
    lines = [
        f"{machine.title}: {len(found.samples):,} samples, {machine.count} {unit}{'s' if machine.count > 1 else ''}",
        *_unfinished(found),
        "",
    ]
    header = ["kind", "samples", "measured / formula", "left out: median", "p90"]
    rows = [
        [kind, str(one.samples), f"{one.factor:.2f}", *_errors(one)]
        for kind, one in found.fits.items()
        if len(kind.split()) <= WORDS
    ]
    power = _under_power(found)
    lines += [table(header, rows), ""]
    lines += [folded_lines(f"among others they take as many times as long: {power}"), ""] if power else []
    lines += [f"written to {out}", f"use it: foretell predict ... --calibration {out}"]
    return "\n".join(lines)


def _under_power(found: Calibration) -> str:
    """How many times as long kernels take among others; empty where that was not timed."""
    from foretell.cost.sustained import told, under_power
    from foretell.hardware.members import device

    known = under_power(found, device(found.machine.device)) if found.machine.kind == "cuda" else None
    return told(known) if known else ""


def _unfinished(found: Calibration) -> list[str]:
    if found.complete:
        return []
    return ["a quick one: a whole one is preferred to it" if found.quick else "not complete: --resume goes on"]


def _errors(one: SampleFit) -> list[str]:
    return [f"{one.median:.0%}", f"{one.p90:.0%}"] if one.samples > 1 else ["-", "-"]


def _json(found: Calibration, out: Path, failed: dict[str, str]) -> str:
    import msgspec

    told: dict[str, Any] = {
        "record": str(out),
        "machine": found.machine,
        "samples": len(found.samples),
        "complete": found.complete,
        "fits": found.fits,
        "failed": failed,
    }
    return msgspec.json.encode(told).decode()
