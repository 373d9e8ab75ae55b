"""The pipeline of a published run: its schedule, and the layers of each stage."""

from __future__ import annotations

import re
from typing import Final

from foretell.model import zoo
from foretell.plan.schedule import find
from foretell.plan.syntax import spelled_list
from foretell.plan.trainer import Trainer
from foretell.units import ceil_div
from foretell.validation.study import Line, Unmapped, whole, whole_or

SCHEDULES = {
    "1f1b": "1f1b",
    "interleaved 1f1b": "interleaved",
    "interleaved": "interleaved",
    "1f1b-i": "interleaved",
    "zb-1p": "zb-h1",
    "zb-h1": "zb-h1",
    "zb-v": "zb-v",
    "gpipe": "gpipe",
    "dualpipe": "dualpipe",
    "dualpipe-v": "dualpipe-v",
}
"""Words of sources to those of plans."""


MOST: Final = 10_000
"""Stages; no model has as many layers."""


def pipeline(line: Line, runs: Trainer) -> str:
    """The pipeline axis; empty with one rank."""
    ranks = whole(line, "pp")
    if ranks == 1:
        return ""
    schedule, stages = _scheduled(line)
    chunks = [f"v{stages // ranks}"] if schedule == "interleaved" else []
    counts = _ends(line, stages, runs) or _short(line, stages, runs)
    split = [f"split={spelled_list(counts)}"] if counts else []
    return f"pp{ranks}:{','.join([schedule, *chunks, *split])}"


def layers_of(line: Line) -> int:
    """As stated, else those of the model of the zoo."""
    if not line.get("layers"):
        known = zoo.named(line.get("model", ""))
        own = getattr(known, "layers", 0)
        if isinstance(own, int) and own:
            return own
    return whole(line, "layers")


def short_last(line: Line, runs: Trainer) -> tuple[str, ...]:
    """What is assumed of stages whose layers do not divide."""
    if whole(line, "pp") == 1:
        return ()
    _, stages = _scheduled(line)
    if _ends(line, stages, runs) or not _short(line, stages, runs):
        return ()
    return ("split: equal stages but for the last (as DeepSeek-V3's layouts in Megatron-Bridge)",)


def said_schedule(line: Line) -> str:
    """The schedule as the source names it, in small letters; empty where it does not."""
    named = re.search(r"schedule ([\w*-]+(?: 1F1B)?)", line.get("comment", ""))
    return (line.get("schedule", "") or (named[1] if named else "")).lower()


def _scheduled(line: Line) -> tuple[str, int]:
    """The schedule in the plan's words, and its stages."""
    ranks, chunks, word = whole(line, "pp"), whole_or(line, "vpp", 1), said_schedule(line)
    if word and word not in SCHEDULES:
        raise Unmapped(f"schedule {word} is not in the plan grammar")
    schedule = SCHEDULES[word] if word else "interleaved" if chunks > 1 else "1f1b"
    stages = ranks * (chunks if schedule == "interleaved" else find(schedule).least_chunks)
    if stages > min(layers_of(line) + 2, MOST):
        raise Unmapped(f"{stages:,} stages are more than layers")
    return schedule, stages


def _ends(line: Line, stages: int, runs: Trainer) -> list[int]:
    """Where embedding and head count as a layer each, first and last stage hold one layer less.

    A run with Megatron whose layers do not divide, but do with these two, can only have been so.
    """
    layers = layers_of(line)
    slots, rest = divmod(layers + 2, stages)
    said = re.search(r"embedding slots|as pipeline slots|one layer less", line.get("comment", ""))
    if rest or slots < 1 or not (said or _chosen(layers, stages, runs)):
        return []
    return [slots - 1, *[slots] * (stages - 2), slots - 1]


def _short(line: Line, stages: int, runs: Trainer) -> list[int]:
    """Equal stages but for the last, which has what is left; where that is nothing, others at the ends give one too."""
    layers = layers_of(line)
    if not _chosen(layers, stages, runs):
        return []
    most = ceil_div(layers, stages)
    counts, missing = [most] * stages, most * stages - layers
    for at in (stages - 1, 0, *range(stages - 2, 0, -1)):
        taken = min(missing, most - 1)
        counts[at] -= taken
        missing -= taken
    return counts


def _chosen(layers: int, stages: int, runs: Trainer) -> bool:
    """Whether layers do not divide, and the trainer lets one say which stage has which."""
    return bool(runs.legal.layers_divide and runs.legal.uneven_stages and layers % stages)
