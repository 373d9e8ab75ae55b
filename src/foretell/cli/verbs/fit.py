"""foretell fit: whether a model fits a cluster, with which plan, and with which micro-batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.cli.accuracy_lines import accuracy_line
from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.parts import largest_first, parts_table
from foretell.cli.rates import batch_text, flops_text, interval_text, rate_text, shown_memory
from foretell.cli.request_options import (
    BATCH,
    CALIBRATION,
    FORWARD,
    MODEL,
    ON,
    OPTIMIZER,
    READING,
    SEQ,
    STACK,
    TRAINER,
    asks,
    on_cluster,
    tell,
)
from foretell.cli.table import fit as shortened
from foretell.cli.table import folded, table
from foretell.cli.training_options import run_lines, trained
from foretell.errors import BadInput
from foretell.oracle.verdict import RETRIES
from foretell.units import show_bytes, show_of, show_rate

if TYPE_CHECKING:
    from foretell.oracle.fit import Fit, PlanChange
    from foretell.oracle.request import Request
    from foretell.oracle.training import Training, TrainingRun

EXAMPLE = "foretell fit llama3-8b --on 8xh100"

LIMITS = {
    "memory": "a larger micro-batch does not fit",
    "batch": "the batch has no larger micro-batch",
    "model": "the micro-batch size is that of the traced graph",
}
"""Why the micro-batch size is not larger."""


@click.command("fit", short_help="Whether a model fits a cluster, and what would.")
@asks(
    MODEL,
    READING,
    ON,
    click.option("--plan", metavar="TEXT", help="Only this plan, instead of a list of common ones."),
    BATCH,
    SEQ,
    TRAINER,
    OPTIMIZER,
    FORWARD,
    CALIBRATION,
    STACK,
)
@trained()
@click.option("--tuning", is_flag=True, help="Ways to fine-tune, from all weights to 4 bits, and the one to take.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, run: TrainingRun, tuning: bool, as_json: bool) -> None:
    """Whether MODEL fits a cluster, with which plan, and at which micro-batch size.

    Without --plan common plans are tried, in bf16 if the device has it. Without --batch
    a step has one micro-batch, as large as fits (with a pipeline: four for each stage).
    With it, gradients are accumulated. The exit code is 1 if it does not fit.
    """
    from foretell.oracle.fit import fit

    if tuning:
        _tuned(on_cluster(request, EXAMPLE).changed(run=run), as_json)
        return
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


def _tuned(request: Request, as_json: bool) -> None:
    """The ladder of fine-tuning instead; the exit code is 1 if no rung fits."""
    from foretell.cli.tuning_pages import tuning_page
    from foretell.oracle.tuning import tuning

    for name, given in (("--plan", request.plan), ("--optimizer", request.optimizer), ("--forward", request.forward)):
        if given:
            raise BadInput(f"every rung has its own plan and optimizer, and {name} is given", where=name)
    found = tuning(request)
    tell(found, tuning_page, request, as_json)
    if found.taken < 0:
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
        end = f"{found.plan}, micro-batch size {found.micro_batch:,}"
        return folded(f"{name} fits {found.cluster}: {end}")
    too_much = show_bytes(-found.free_bytes)
    if len(found.tried) > 1:
        return folded(f"{name} does not fit {found.cluster}: {too_much} over with the plan that needs least")
    end = ""
    if found.prediction.verdict == RETRIES:
        end = "; with retries of the allocator it runs, slower"
    return folded(f"{name} does not fit {found.cluster} with this plan: {too_much} over{end}")


def _facts(found: Fit, run: Training | None, price: float) -> str:
    answer = found.prediction
    usable = found.free_bytes + answer.memory_bytes
    lines = [("plan", f"{found.plan}, trainer {found.trainer}")]
    if found.fits:
        lines += [
            ("batch", batch_text(answer)),
            ("", f"{LIMITS[found.limit]}{_one_more(found)}"),
            ("step", interval_text(answer)),
            ("rate", rate_text(answer)),
            ("", flops_text(answer)),
            ("memory", f"{show_of(answer.memory_bytes, usable)} usable"),
            ("", f"peak during {answer.memory.peak_moment}"),
        ]
    else:
        lines += [
            ("batch", batch_text(answer)),
            ("memory", f"{show_of(answer.memory_bytes, usable)} usable"),
            ("", f"peak during {answer.memory.peak_moment}"),
        ]
    lines += run_lines(run, price, answer.forward) if run else []
    lines += accuracy_line(answer)
    return "\n".join(folded(f"{name:<13}{text}", 13) for name, text in lines)


def _one_more(found: Fit) -> str:
    return (
        f" (one more {found.prediction.sample} needs {show_bytes(found.sample_bytes)})"
        if found.sample_bytes > 0
        else ""
    )


def _memory(found: Fit) -> str:
    """The peak memory, worst rank at its peak, and what is left."""
    usable = found.free_bytes + found.prediction.memory_bytes
    kinds = largest_first(shown_memory(found.prediction), 1.0)
    rest = ("free" if found.free_bytes >= 0 else "over", abs(found.free_bytes))
    return parts_table("peak memory, worst rank", [*kinds, rest], usable, show_bytes, "of usable")


def _changes(found: Fit) -> str:
    """What would fit; the command that is proposed stays on the cluster that was asked about, where one does."""
    from foretell.plan.policies.lora import Lora
    from foretell.plan.text import parse

    header = ["what would fit", "memory", "samples/s", "micro-batch"]
    rows: list[list[str]] = []
    for change in found.changes:
        room = show_of(change.memory_bytes, change.usable)
        rows.append([change.what, room, show_rate(change.samples_per_second), f"{change.micro_batch:,}"])
    here = [change for change in found.changes if change.cluster == found.cluster]
    lines = [table(header, rows), folded(f"try {_command(found, [*here, *found.changes][0])}", 4)]
    if any(parse(change.plan).policy(Lora).rank for change in here):
        lines.append(folded(f"all ways to fine-tune it: foretell fit {found.model} --on {found.cluster} --tuning", 4))
    return "\n".join(lines)


def _command(found: Fit, change: PlanChange) -> str:
    options = [f"--batch {found.batch}"] if found.batch else []
    options += [f"--seq {change.seq or found.seq}"] if change.seq or found.seq else []
    options += [f"--trainer {found.trainer}"] if found.trainer != "pytorch" else []
    options += ["--forward"] if found.prediction.forward else []
    return " ".join([f"foretell fit {found.model} --on {change.cluster} --plan '{change.plan}'", *options])


def _tried(found: Fit) -> str:
    rows: list[list[str]] = []
    for rung in found.tried:
        if not rung.why:
            rate = show_rate(rung.samples_per_second) if rung.fits else "does not fit"
            rows.append([rung.plan, f"{rung.micro_batch:,}", show_bytes(rung.memory_bytes), rate])
    text = table(["tried", "micro-batch", "memory", "samples/s"], rows)
    refused = [rung for rung in found.tried if rung.why]
    if not refused:
        return text
    more = f"; and {len(refused) - 1} more plans: --json" if len(refused) > 1 else ""
    return f"{text}\n{folded(f'refused: {refused[0].why}{more}')}"
