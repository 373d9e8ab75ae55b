"""What `foretell rehearse` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.cli.run_pages import comparison_page, show_seconds
from foretell.cli.table import WIDTH, fit, folded_lines, table
from foretell.units import show_bytes, show_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretell.runtime.assignment import Held, Report
    from foretell.runtime.comparison import Comparison
    from foretell.runtime.measure import Measurement
    from foretell.runtime.rehearsal import Rehearsed


def page(found: Rehearsed, measured: Measurement, compared: Comparison) -> str:
    """What was rehearsed, beside what is predicted of it, and what cannot be seen of it."""
    from foretell.hardware import catalog
    from foretell.runtime.recording import machine
    from foretell.runtime.rehearsal import UNSEEN

    asked, here = found.assignment.rehearsal, machine(found.assignment.device)
    assert asked is not None
    theirs = catalog.cluster(asked.cluster).device
    reserved = f", {show_bytes(measured.memory.reserved)} reserved" if found.assignment.device == "cuda" else ""
    facts = [
        ("model", fit(measured.model, WIDTH - 14)),
        ("plan", f"{measured.plan}, batch {measured.batch:,}"),
        ("rehearsed", f"rank {', '.join(map(str, measured.rehearsed))} of {measured.ranks:,}, on {here.title}"),
        ("messages", f"as they are priced on {asked.cluster}" if asked.priced else "take no time"),
        ("extended", _extended(measured)),
        ("step", f"{show_seconds(measured.step_seconds)} over {measured.samples.n} steps"),
        ("host-bound", f"{show_percent(measured.idle)} of it: no kernel ran" if measured.idle else ""),
        ("memory", f"{show_bytes(measured.memory_bytes)} of tensors on the fullest{reserved}"),
        ("record", measured.record),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in facts if text)
    notes = [f"Two shallower models stand for it: {found.why}."] if found.why else []
    if here.device != theirs.name:
        notes.append(
            f"{other_device(here.device, theirs.name)}: the prediction beside it is for {asked.cluster} with "
            f"{here.device} in its place, and it is no anchor for {theirs.name}."
        )
    notes.append(f"Not seen in a rehearsal: {'; '.join(UNSEEN)}.")
    told = "\n\n".join(folded_lines(note) for note in notes)
    ranks = [_by_rank(found.reports)] if len(found.reports) > 1 else []
    worst = max(found.reports, key=lambda one: one.allocated)
    held = [held_table(worst.resting, worst.alive)] if worst.alive else []
    return "\n\n".join([head, *ranks, comparison_page(compared), *held, told])


def held_table(resting: int, alive: Sequence[Held]) -> str:
    """What there was at the fullest moment of a step, by the allocator's own history."""
    rows = [[show_bytes(resting), "", "between two steps: weights, states"]]
    rows += [[show_bytes(one.size), f"{one.count}", fit(one.where, WIDTH - 26)] for one in alive]
    return table(["at the fullest", "blocks", "made by"], rows, left=(2,))


def other_device(here: str, theirs: str) -> str:
    """That kernels are not those of the cluster."""
    return f"Kernels, host and allocator are those of {here} here, not of {theirs}"


def _extended(measured: Measurement) -> str:
    if not measured.depths:
        return ""
    first, second = measured.depths
    return f"from models of {first} and {second} layers, by what the program says of them"


def _by_rank(reports: Sequence[Report]) -> str:
    """Each rank that ran."""
    from statistics import median

    rows = [
        [f"{one.rank}", f"{one.place.get('pp', 0)}", show_seconds(median(one.steps)), show_bytes(one.allocated)]
        for one in reports
    ]
    return table(["rank", "stage", "step", "memory"], rows)
