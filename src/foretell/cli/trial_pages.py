"""What `foretell sweep --trials` prints below its tables: what each trial gets, and when all are over."""

from __future__ import annotations

from foretell.cli.table import folded, table
from foretell.sweeping.trials import TrialLayout
from foretell.units import show_percent, show_span

NAMES = ("batch", "trainer", "seq", "precision")


def layout_page(found: TrialLayout) -> str:
    """A line for each candidate."""
    varied = [name for name in NAMES if len({getattr(one, name) for one in found.groups}) > 1]
    rows: list[list[str]] = []
    for one in found.groups:
        what = [one.model, *(str(getattr(one, name)) for name in varied)]
        rows.append([*what, f"{one.trials:,}", f"{one.ranks:,}", show_span(one.seconds), one.plan])
    header = ["model", *varied, "trials", "GPUs each", "time each", "plan"]
    head = f"trials of {found.steps:,} steps on {found.gpus:,} x {found.device}"
    idle = f"{show_percent(found.idle, 0)} of the GPU time idle"
    last = f"all over after {show_span(found.seconds)}, {idle}; no layout takes less than {show_span(found.least)}"
    return f"{head}\n{table(header, rows)}\n\n{folded(last, 2)}"
