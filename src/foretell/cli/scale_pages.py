"""What `foretell scale` prints: the best plan of each number of ranks, lines of strategies, crossings and ends."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.cli.accuracy_lines import accuracy_by_ranks
from foretell.cli.compare_pages import lines
from foretell.cli.plan_pages import listed, seconds
from foretell.cli.table import WIDTH, fit, folded
from foretell.oracle.scale import MEMORY, Gap, Scaling, ScalingPoint
from foretell.units import show_bytes, show_percent, show_rate

SHOWN = 12
"""Crossings that are shown on the page."""


def scale_page(found: Scaling) -> str:
    """The best plan of each number of ranks; every line with its points; then crossings and ends."""
    parts = [_head(found), _best(found), *_strategies(found), *_crossings(found), *_ends(found)]
    return "\n\n".join(parts if found.complete else [*parts, "Interrupted before all were evaluated."])


def _head(found: Scaling) -> str:
    strong = f"{found.batch:,}, the same for all (strong scaling)"
    form = f"{found.batch:,} per data-parallel rank (weak scaling)" if found.weak else strong
    counts = ", ".join(f"{name} on {ranks:,}" for ranks, name in found.fastest.items())
    return lines(
        [
            ("model", fit(found.model, WIDTH - 18)),
            ("on", f"{found.cluster}, trainer {found.trainer}"),
            ("batch", form),
            *([("fastest", f"of single strategies: {counts}")] if counts else []),
            ("efficiency", f"samples/s per GPU, against {found.base_plan} on {_gpus(found.base_ranks)}"),
            *accuracy_by_ranks(found.accuracy),
        ]
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count:,} GPUs"


COLUMNS = ("GPUs", "step", "samples/s", "efficiency", "memory")


def _cells(point: ScalingPoint) -> list[str]:
    rate, share = show_rate(point.samples_per_second), show_percent(point.efficiency, 0)
    return [f"{point.ranks:,}", seconds(point.step_seconds), rate, share, show_bytes(point.memory_bytes)]


def _best(found: Scaling) -> str:
    """The best plan of each number of ranks; what is short where none fits."""
    rows = {point.ranks: [*_cells(point), point.plan] for point in found.best.points}
    rows |= {gap.ranks: [f"{gap.ranks:,}", "", "", "", "", _none(gap)] for gap in found.best.gaps}
    return listed([*COLUMNS, "the best plan"], [rows[ranks] for ranks in sorted(rows)])


def _none(gap: Gap) -> str:
    return f"does not fit: {gap.why}" if gap.limit == MEMORY else f"none: {_limit(gap)}"


def _strategies(found: Scaling) -> list[str]:
    """The fastest plan of each strategy where there is one that fits; the others by name alone."""
    rows: list[list[str]] = []
    for line in found.lines:
        for at, point in enumerate(line.points):
            rows.append([line.name if at == 0 else "", *_cells(point), point.plan])
    table = [listed(["strategy", *COLUMNS, "its fastest plan"], rows, left=1)] if rows else []
    return [*table, *_too_large(found)]


def _too_large(found: Scaling) -> list[str]:
    """Where strategies do not fit, in one line: a large model fits with few of them, and the best plan is above."""
    where: dict[str, list[str]] = {}
    for line in found.lines:
        ranks = [gap.ranks for gap in line.gaps if gap.limit == MEMORY]
        if ranks:
            where.setdefault(_span(ranks), []).append(line.name)
    told = [f"{', '.join(names)} on {span} GPUs" for span, names in where.items()]
    return [folded(f"does not fit in memory: {'; '.join(told)}", 2)] if told else []


def _span(ranks: Sequence[int]) -> str:
    return f"{ranks[0]:,}" if len(ranks) == 1 else f"{ranks[0]:,} to {ranks[-1]:,}"


def _crossings(found: Scaling) -> list[str]:
    if not found.crossings:
        return []
    rows = [
        [f"{one.low:,} to {one.high:,}", f"{one.second} overtakes {one.first}"]
        for one in sorted(found.crossings, key=lambda one: (one.low, one.high))[:SHOWN]
    ]
    more = len(found.crossings) - len(rows)
    text = listed(["GPUs", "crossovers"], rows)
    return [text + (f"\nand {more} more: --json" if more else "")]


def _ends(found: Scaling) -> list[str]:
    shown = {line.name for line in found.lines}
    ending = {name: gap for name, gap in found.ends.items() if name in shown and gap.limit != MEMORY}
    rows = [[name, f"{gap.ranks:,}", _limit(gap)] for name, gap in ending.items()]
    others = [name for name in found.ends if name not in shown]
    parts = [listed(["stops scaling", "at", "limit"], rows, left=1)] if rows else []
    if others:
        parts.append(folded(f"not possible for this model or batch: {', '.join(others)}", 2))
    return ["\n".join(parts)] if parts else []


def _limit(gap: Gap) -> str:
    return f"{gap.limit}: {gap.why}"
