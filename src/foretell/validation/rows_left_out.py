"""Constants chosen again without some rows of a source, with its other rows in view: errors where software is known.

The rows of a source are dealt into folds by a seed and what was asked. Without a fold every constant that the source
was in view of is chosen again on what is left of the sources that it was chosen on: the value of the trainer below, or
that which ships times one of `MULTIPLES`, whichever is nearest in the mean over sources. Three restrictions make it
cheap: each constant is chosen once, one after the other; on a few runs of each source and trainer, evenly taken; and
around the value that ships. That had the fold in view: what is left of it is the range, a factor of two either way.
Sources that no constant saw are predicted as they are. `foretell validate --choose` does it with the sources left out.
"""

from __future__ import annotations

import functools
import statistics
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from foretell.hardware import members
from foretell.plan.trainer import trainer
from foretell.validation.in_view import Chosen, Slot, in_groups, in_view, slots_of
from foretell.validation.left_out import ChosenAgain, bears_on, misses_of, read_chosen, written
from foretell.validation.study import MeasuredRun
from foretell.validation.tried import Prepared

FILE: Final = Path(__file__).with_name("rows_left_out.json")

SEED: Final = 23

FOLDS: Final = 3

ROWS: Final = 24
"""Runs of a source and trainer that are taken where the source itself is left out in part: a third of them is out."""

MULTIPLES: Final = tuple(2 ** (step / 3) for step in (-3, -2, -1, -0.5, 0.5, 1, 2, 3))

SHARES: Final = (
    "gradients.rate",
    "gradients.overlap",
    "gradients.overlap_pipeline",
    "attention.peak",
    "splits.reached",
)
"""Constants that are no more than all."""


def fold_of(row: MeasuredRun) -> int:
    """The fold that a run lies in: runs of one question together."""
    said = (SEED, row.model, str(row.plan), row.trainer, row.cluster, row.job.batch)
    return zlib.crc32(repr(said).encode()) % FOLDS


@functools.cache
def folded() -> dict[str, tuple[Chosen, ...]]:
    """What ships: by source, the constants without each of its folds."""
    if not FILE.is_file():
        return {}
    kept = msgspec.json.decode(FILE.read_bytes(), type=dict[str, tuple[tuple[ChosenAgain, ...], ...]])
    return {source: tuple(map(read_chosen, folds)) for source, folds in kept.items()}


def encoded(chosen: Mapping[str, Sequence[Chosen]]) -> bytes:
    """As `folded` reads it."""
    plain = {source: [written(values) for values in folds] for source, folds in sorted(chosen.items())}
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def choose_without_fold(source: str, fold: int, runs: Sequence[Prepared]) -> dict[Slot, Any]:
    """The constants that a source was in view of, chosen again without one of its folds."""
    left = [one for one in runs if one.source != source or fold_of(one.row) != fold]
    chosen = {slot: as_shipped(slot) for slot in slots_of(source)}
    for group in in_groups(slots_of(source)):
        bearing = [one for one in left if one.source in in_view()[group[0]] and bears_on(group[0], one)]
        ways = [way for way in ways_of(group) if way]
        tried = misses_of(bearing, source, [{**chosen, **way} for way in ways]) if bearing else []
        if len({statistics.fmean(each.values()) for each in tried}) > 1:
            chosen |= min(zip(ways, tried, strict=True), key=lambda both: statistics.fmean(both[1].values()))[0]
    return chosen


def as_shipped(slot: Slot) -> Any:
    """A constant as it is."""
    if slot.kind == "trainers":
        return trainer(slot.owner).constant(slot.key)
    reached = members.architecture if slot.owner in members.names("architectures") else members.device
    return reached(slot.owner).reached[slot.key].products


def ways_of(group: Sequence[Slot]) -> list[dict[Slot, Any]]:
    """What constants that go together may be: as they ship, a multiple of that, or as the trainer below has them."""
    shipped = {slot: as_shipped(slot) for slot in group}
    ways = [shipped, *({slot: times(slot, value, by) for slot, value in shipped.items()} for by in MULTIPLES)]
    if group[0].kind == "trainers" and (lower := trainer(group[0].owner).based_on):
        ways.append({slot: trainer(lower).constant(slot.key) for slot in group})
    return [way for at, way in enumerate(ways) if way not in ways[:at]]


def times(slot: Slot, value: Any, by: float) -> Any:
    """A number, or each of a table, a share at most all; words and truths stay."""
    most = 1.0 if slot.kind == "kernels" or slot.key in SHARES else float("inf")
    match value:
        case bool():
            return value
        case float():
            return min(most, value * by)
        case tuple():
            table = msgspec.convert(value, tuple[tuple[str, float], ...])
            return tuple((name, min(most, number * by)) for name, number in table)
        case _:
            return value
