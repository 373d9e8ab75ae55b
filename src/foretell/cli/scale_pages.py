"""What `foretell scale` prints: a table of lines over numbers of GPUs, where they cross and where they end."""

from __future__ import annotations

from foretell.cli.accuracy_lines import accuracy_by_ranks
from foretell.cli.compare_pages import lines
from foretell.cli.plan_pages import listed, seconds
from foretell.cli.table import WIDTH, fit, folded
from foretell.oracle.scale import MEMORY, Gap, Scaling, ScalingLine
from foretell.units import show_bytes, show_percent, show_rate

SHOWN = 12
"""Crossings that are shown on the page."""


def scale_page(found: Scaling) -> str:
    """Every line with its points; then crossings and ends."""
    parts = [_head(found), _table(found), *_crossings(found), *_ends(found)]
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
            ("fastest", counts),
            ("efficiency", f"samples/s per GPU, against {found.base_plan} on {_gpus(found.base_ranks)}"),
            *accuracy_by_ranks(found.accuracy),
        ]
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count:,} GPUs"


def _table(found: Scaling) -> str:
    rows: list[list[str]] = []
    for line in found.lines:
        points = {point.ranks: point for point in line.points}
        for at, ranks in enumerate(sorted({*points, *(gap.ranks for gap in line.gaps if gap.limit == MEMORY)})):
            name = line.name if at == 0 else ""
            point = points.get(ranks)
            if point is None:
                rows.append([name, f"{ranks:,}", "", "", "", "", _memory(line, ranks)])
                continue
            figures = [
                seconds(point.step_seconds),
                show_rate(point.samples_per_second),
                show_percent(point.efficiency, 0),
            ]
            rows.append([name, f"{ranks:,}", *figures, show_bytes(point.memory_bytes), point.plan])
    return listed(["strategy", "GPUs", "step", "samples/s", "eff.", "memory", "fastest plan"], rows, left=1)


def _memory(line: ScalingLine, ranks: int) -> str:
    return next(f"does not fit: {gap.why}" for gap in line.gaps if gap.ranks == ranks)


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
    rows = [[name, f"{gap.ranks:,}", _limit(gap)] for name, gap in found.ends.items() if name in shown]
    others = [name for name in found.ends if name not in shown]
    parts = [listed(["stops scaling", "at", "limit"], rows, left=1)] if rows else []
    if others:
        parts.append(folded(f"not possible for this model or batch: {', '.join(others)}", 2))
    return ["\n".join(parts)] if parts else []


def _limit(gap: Gap) -> str:
    return f"{gap.limit}: {gap.why}"
