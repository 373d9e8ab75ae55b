"""What `foretell plan --batch auto` prints beside the winner: each batch with its steps and its time to quality."""

from __future__ import annotations

from foretell.cli.plan_pages import listed, seconds
from foretell.cli.table import folded
from foretell.cli.training_options import show_span
from foretell.oracle.batches import BatchChoice, Weighed
from foretell.units import show_count, show_rate

MARK = "*"
"""Before the best."""


def tradeoff_table(choice: BatchChoice, price: float) -> str:
    """Every batch that was tried, the best marked, and what the columns are."""
    several = len({one.ranks for one in choice.batches}) > 1
    header = ["", "batch", *(["ranks"] if several else []), "steps", "samples", "step"]
    header += ["to quality", "cost" if price else "device-h", f"its best plan ({MARK}: best by {choice.by})"]
    if not choice.least_samples:
        header = [name for name in header if name not in ("cost", "device-h")]
    rows = [_row(one, choice, several) for one in choice.batches]
    return f"{listed(header, rows)}\n{folded(_note(choice, price), 2)}"


def _row(one: Weighed, choice: BatchChoice, several: bool) -> list[str]:
    best = choice.best
    mark = MARK if best is not None and (one.batch, one.ranks) == (best.batch, best.ranks) else ""
    cells = [mark, f"{one.batch:,}", *([f"{one.ranks:,}"] if several else [])]
    cells += [f"x{one.steps_factor:,.3g}", f"x{one.samples_factor:,.3g}"]
    if best is None or one.step_seconds is None or one.seconds_to_quality is None or one.cost is None:
        return [*cells, "", "", *([""] if choice.least_samples else []), one.reason]
    cells.append(seconds(one.step_seconds))
    if choice.least_samples:
        return [*cells, show_span(one.seconds_to_quality), show_rate(one.cost), one.plan]
    assert best.seconds_to_quality is not None
    return [*cells, f"{one.seconds_to_quality / best.seconds_to_quality:.2f}", one.plan]


def _note(choice: BatchChoice, price: float) -> str:
    text = (
        f"steps, samples: over the least there can be, with a noise scale of {show_count(choice.noise_scale)} samples "
        "(McCandlish et al. 2018, arXiv 1812.06162)"
    )
    text += f", {choice.noise_source}" if choice.noise_source else ""
    if not choice.least_samples:
        text += "; to quality: over the best; --samples or --tokens, what small batches need, gives days"
    elif price:
        text += f"; cost at {price:g} per GPU-hour"
    if choice.at_the_end:
        text += "; the best is at the end of what was tried: --batch LOW..HIGH tries others"
    return text
