"""foretell fit: whether a model fits a cluster, with which plan, and with how many samples at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.accuracy_lines import accuracy_line
from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.parts import largest_first, parts_table
from foretell.cli.request_options import BATCH, CALIBRATION, MODEL, ON, OPTIMIZER, SEQ, TRAINER, asks, on_cluster
from foretell.cli.table import fit as shortened
from foretell.cli.table import folded, table
from foretell.cli.training_options import run_lines, trained
from foretell.units import show_bytes, show_count, show_rate, show_seconds

if TYPE_CHECKING:
    from foretell.oracle.fit import Fit, PlanChange
    from foretell.oracle.request import Request
    from foretell.oracle.training import Training, TrainingRun

EXAMPLE = "foretell fit llama3-8b --on 8xh100"

LIMITS = {"memory": "more do not fit", "batch": "the batch has no more", "model": "the graph is for this many"}


@click.command("fit", short_help="Whether a model fits a cluster, and what would.")
@asks(
    MODEL,
    ON,
    click.option("--plan", metavar="TEXT", help="Only this plan, instead of a list of common ones."),
    BATCH,
    SEQ,
    TRAINER,
    OPTIMIZER,
    CALIBRATION,
)
@trained()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, run: TrainingRun, as_json: bool) -> None:
    """Whether MODEL fits a cluster, with which plan, and at which micro-batch size.

    Without --plan common plans are tried, in bf16 if the device has it. Without --batch
    a step has one micro-batch, as large as fits (with a pipeline: four for each stage).
    With it, gradients are accumulated. The exit code is 1 if it does not fit.
    """
    from foretell.oracle.fit import fit

    found = fit(on_cluster(request, EXAMPLE).changed(run=run))
    amount = found.prediction.training if found.fits else None
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({**msgspec.to_builtins(found), "training": amount}))
    else:
        click.echo(_page(found, amount, run.conditions.price))
        tell_notes(found.notes)
    if not found.fits:
        raise click.exceptions.Exit(NOTHING_FITS)


def _page(found: Fit, run: Training | None, price: float) -> str:
    parts = [_answer(found), _facts(found, run, price), _memory(found)]
    if found.changes:
        parts.append(_changes(found))
    elif not found.fits:
        parts.append("Nothing that was tried would fit: no policy, axis, device or number of ranks.")
    if len(found.tried) > 1:
        parts.append(_tried(found))
    return "\n\n".join(parts)


def _answer(found: Fit) -> str:
    name = shortened(found.model, 30)
    if found.fits:
        plural = "sample" if found.micro_batch == 1 else "samples"
        end = f"{found.plan}, {found.micro_batch:,} {plural} at a time"
        return folded(f"{name} fits {found.cluster}: {end}")
    too_much = show_bytes(-found.free_bytes)
    if len(found.tried) > 1:
        return folded(f"{name} does not fit {found.cluster}: {too_much} too much with the plan that takes least")
    return folded(f"{name} does not fit {found.cluster} with this plan: {too_much} too much")


def _facts(found: Fit, run: Training | None, price: float) -> str:
    answer = found.prediction
    rate = f"{show_rate(answer.samples_per_second)} samples/s"
    if answer.tokens_per_second:
        rate += f", {show_count(answer.tokens_per_second)} tokens/s"
    usable = show_bytes(found.free_bytes + answer.memory_bytes)
    lines = [("plan", f"{found.plan}, trainer {found.trainer}")]
    if found.fits:
        lines += [
            ("step", f"{show_seconds(answer.step_seconds)}, batch {answer.batch:,}"),
            ("rate", f"{rate}, {answer.utilisation:.1%} of the peak"),
            ("memory", f"{show_bytes(answer.memory_bytes)} of {usable} that it may use"),
            ("", f"at {answer.memory.peak_moment}"),
            ("at a time", f"{found.micro_batch:,} a rank: {LIMITS[found.limit]}{_one_more(found)}"),
        ]
    else:
        lines += [
            ("memory", f"{show_bytes(answer.memory_bytes)}, and it may use {usable}"),
            ("when", answer.memory.peak_moment),
            ("at a time", f"{found.micro_batch:,} a rank"),
        ]
    lines += run_lines(run, price) if run else []
    lines += accuracy_line(answer)
    return "\n".join(folded(f"{name:<13}{text}", 13) for name, text in lines)


def _one_more(found: Fit) -> str:
    return f" (one more takes {show_bytes(found.sample_bytes)})" if found.sample_bytes > 0 else ""


def _memory(found: Fit) -> str:
    """What the memory is taken by at the fullest moment, and what is left."""
    usable = found.free_bytes + found.prediction.memory_bytes
    kinds = largest_first(found.prediction.memory.by_kind, 1.0)
    rest = ("left" if found.free_bytes >= 0 else "too much", abs(found.free_bytes))
    title = "memory is taken by" if found.fits else "alive then"
    return parts_table(title, [*kinds, rest], usable, show_bytes, "of what it may use")


def _changes(found: Fit) -> str:
    header = ["what would fit", "memory", "samples/s", "at a time"]
    rows: list[list[str]] = []
    for change in found.changes:
        room = f"{show_bytes(change.memory_bytes)} of {show_bytes(change.usable)}"
        rows.append([change.what, room, show_rate(change.samples_per_second), f"{change.micro_batch:,}"])
    first = found.changes[0]
    return f"{table(header, rows)}\n{folded(f'try {_command(found, first)}', 4)}"


def _command(found: Fit, change: PlanChange) -> str:
    options = [f"--batch {found.batch}"] if found.batch else []
    options += [f"--seq {change.seq or found.seq}"] if change.seq or found.seq else []
    options += [f"--trainer {found.trainer}"] if found.trainer != "pytorch" else []
    return " ".join([f"foretell fit {found.model} --on {change.cluster} --plan '{change.plan}'", *options])


def _tried(found: Fit) -> str:
    rows: list[list[str]] = []
    for rung in found.tried:
        if not rung.why:
            rate = show_rate(rung.samples_per_second) if rung.fits else "too much"
            rows.append([rung.plan, f"{rung.micro_batch:,}", show_bytes(rung.memory_bytes), rate])
    text = table(["tried", "at a time", "memory", "samples/s"], rows)
    refused = [rung for rung in found.tried if rung.why]
    if not refused:
        return text
    more = f"; and {len(refused) - 1} more plans: --json" if len(refused) > 1 else ""
    return f"{text}\n{folded(f'refused: {refused[0].why}{more}')}"
