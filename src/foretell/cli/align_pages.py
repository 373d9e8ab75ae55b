"""A step of a method after pre-training on a page."""

from __future__ import annotations

from foretell.cli.table import fit as shortened
from foretell.cli.table import folded, table
from foretell.oracle.alignment import Alignment, PhasePlacement
from foretell.units import show_bytes, show_number, show_of, show_percent, show_rate, show_seconds

TOLD = {"together": "in turn", "host": "in turn, host", "apart": "apart"}


def align_page(found: Alignment) -> str:
    """The way to take, its phases, and all other ways."""
    parts = [_facts(found), _phases(found.way)]
    if len(found.ways) > 1:
        parts.append(_ways(found))
    return "\n\n".join(parts)


def _facts(found: Alignment) -> str:
    way, each = found.way, found.tokens / found.sequences
    low, high = map(show_seconds, way.interval)
    lines = [
        ("model", f"{shortened(found.model, 40)}, {found.method}"),
        ("plan", way.plan),
        ("on", f"{found.ranks:,} {'GPU' if found.ranks == 1 else 'GPUs'} of {found.cluster}, trainer {found.trainer}"),
        ("batch", f"{found.sequences:,} sequences of {each:,.0f} tokens are trained on in a step"),
    ]
    if way.rollout is not None:
        one = way.rollout
        where = f"{way.rollout_ranks} GPUs" if way.place == "apart" else "the same GPUs"
        lines.append(
            ("rollouts", f"{one.replicas} replicas of {one.form} on {where}, {one.slots:,} answers in flight each")
        )
        cache = f"weights {show_bytes(one.weights_bytes)}, cache {show_bytes(one.cache_bytes)} of a GPU"
        lines.append(("", cache))
        share = one.tail_seconds / one.seconds
        lines.append(("", f"tail: {show_percent(share)} of their time with less than half of these in flight"))
    rate, verdict = found.tokens_per_second, "fits" if way.fits else "DOES NOT FIT"
    lines += [
        ("step", f"{show_seconds(way.step_seconds)} (interval: {low} to {high})"),
        ("rate", f"{show_rate(rate)} tokens/s, {show_rate(rate / found.ranks)} tokens/s/GPU"),
        ("memory", f"{show_of(way.memory_bytes, found.usable)} usable: {verdict}"),
    ]
    lines += [("cost", f"{show_number(found.cost)} for 1,000 steps")] if found.cost else []
    return "\n".join(folded(text, 14, f"{name:<14}") for name, text in lines)


def _phases(way: PhasePlacement) -> str:
    whole = sum(one.seconds for one in way.phases)
    rows = [
        [
            one.what,
            shortened(one.model, 20),
            f"{one.ranks:,}",
            show_seconds(one.seconds),
            show_percent(one.seconds / whole),
            show_bytes(one.memory_bytes),
        ]
        for one in way.phases
    ]
    return table(["phase", "model", "GPUs", "time", "share", "memory"], rows, left=(0, 1))


def _ways(found: Alignment) -> str:
    rows: list[list[str]] = []
    for at, way in enumerate(found.ways):
        gpus = f"{way.training_ranks}+{way.rollout_ranks}" if way.place == "apart" else f"{way.training_ranks}"
        told = show_seconds(way.step_seconds) if way.fits else "too much"
        take = "take" if at == found.taken else ""
        rows.append([take, TOLD[way.place], gpus, way.replica, told, show_bytes(way.memory_bytes)])
    return table(["", "rollouts", "GPUs", "replica", "step", "memory"], rows, left=(0, 1))
