"""Constants chosen again without the runs of one source, and predictions with them: errors on what was never seen.

Constants form a hierarchy: what a trainer does not know of itself is that of the trainer it is based on, down to
PyTorch as it comes. A source that is left out takes the constants with it that it was in view of (`in_view.toml`).
Where other sources were in view too, such a constant is chosen again on their runs, among the values that other
software has, and departs from the trainer below only if they agree on it (`choose`); where none was, it is that of the
trainer below. What matrix units reach is chosen again on all other runs of the architecture. `foretell validate
--choose` does it and writes `left_out.json`.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.oracle.predict import predict
from foretell.plan.setting import Setting
from foretell.plan.trainer import names, trainer
from foretell.validation.evaluate import ComparedPrediction, ComparedRun, Predictor, question
from foretell.validation.in_view import (
    TOGETHER,
    Chosen,
    Slot,
    chain,
    changed,
    cluster_without,
    constants_without,
    holder,
    in_groups,
    in_view,
    own,
    slots_of,
)
from foretell.validation.study import MeasuredRun
from foretell.validation.tried import Prepared, TriedRun, find, log, without

FILE: Final = Path(__file__).with_name("left_out.json")

CELL_ROWS: Final = 8
"""Runs of one source and trainer that a constant is chosen again on, evenly taken."""

WORST: Final = 0.7
"""Logarithm of the error beyond which a run counts no more: one that is twice off has another cause."""

STEPS: Final = tuple(2 ** (-step / 2) for step in range(9))
"""Of the largest value that other software has, down to a sixteenth."""

TIMES: Final = TOGETHER[:2]
"""Of what is chosen together, the seconds."""

REACHED: Final = tuple(round(0.56 + 0.02 * step, 2) for step in range(0, 20, 2))
"""Shares of the peak that matrix units may reach."""


class ChosenAgain(msgspec.Struct, frozen=True):
    """A constant as it is without a source."""

    kind: str
    owner: str
    key: str
    value: Any

    @property
    def slot(self) -> Slot:
        return Slot(self.kind, self.owner, self.key)


def prepared(runs: Iterable[tuple[str, ComparedRun]], most: int = CELL_ROWS) -> list[Prepared]:
    """Some runs of each source and trainer that were predicted and timed as stated, evenly taken."""
    cells: dict[tuple[str, str], list[tuple[str, MeasuredRun]]] = {}
    for source, one in runs:
        if one.time is not None and not one.row.assumed:
            cells.setdefault((source, one.row.trainer), []).append((source, one.row))
    return [Prepared(source, row, *question(row)) for cell in cells.values() for source, row in _some(cell, most)]


def _some(cell: list[tuple[str, MeasuredRun]], most: int) -> Iterator[tuple[str, MeasuredRun]]:
    count = min(most, len(cell))
    return (cell[at * len(cell) // count] for at in range(count))


@functools.cache
def chosen_again() -> dict[str, Chosen]:
    """What ships, by the source that is left out."""
    if not FILE.is_file():
        return {}
    kept = msgspec.json.decode(FILE.read_bytes(), type=dict[str, tuple[ChosenAgain, ...]])
    return {source: read_chosen(values) for source, values in kept.items()}


def encoded(chosen: Mapping[str, Chosen]) -> bytes:
    """As `chosen_again` reads it."""
    plain = {source: written(values) for source, values in sorted(chosen.items()) if values}
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def written(values: Chosen) -> list[ChosenAgain]:
    return [ChosenAgain(*slot, value) for slot, value in sorted(values.items())]


def read_chosen(values: Iterable[ChosenAgain]) -> Chosen:
    return {one.slot: _frozen(one.value) for one in values}


def _frozen(value: Any) -> Any:
    """A table of a trainer's constants as it is in a trainer."""
    return msgspec.convert(value, tuple[tuple[str, float], ...]) if isinstance(value, list) else value


def predictor_without(source: str, chosen: Chosen) -> Predictor:
    """Predicts as if a source had never been seen."""

    def predicted(setting: Setting, cluster: Cluster) -> ComparedPrediction:
        constants = constants_without(setting.trainer.name, source, chosen)
        runs = msgspec.structs.replace(setting, trainer=changed(setting.trainer, constants))
        return predict(runs, cluster_without(cluster, source, chosen))

    return predicted


def is_touched(row: MeasuredRun, device: str, architecture: str, source: str, chosen: Chosen) -> bool:
    """Whether a run is predicted otherwise without a source."""
    kernels = any(slot.kind == "kernels" and slot.owner in (device, architecture) for slot in slots_of(source))
    return kernels or bool(constants_without(row.trainer, source, chosen))


def choose(source: str, runs: Sequence[Prepared]) -> dict[Slot, Any]:
    """The constants that a source was in view of, chosen again on all other runs, one after the other.

    The first candidate is that of the trainer below. Another one is taken if it is nearer to the other sources by more
    than they differ on that (one standard error of the mean over sources, as trees are pruned; Breiman et al. 1984): a
    constant that one of several sources likes belongs to it and not to the trainer. Where one other source is left, it
    decides.
    """
    others = [one for one in runs if one.source != source]
    chosen: dict[Slot, Any] = {}
    for group in in_groups(slots_of(source)):
        if group[0].kind == "trainers" and not in_view()[group[0]] - {source}:
            continue  # nobody else used it: the trainer below says
        ways = candidates(group, source)
        affected = _affected(source, [one for one in others if bears_on(group[0], one)], chosen, ways)
        if affected:
            chosen |= _best(affected, source, chosen, ways)
    return chosen


def _affected(source: str, runs: Sequence[Prepared], chosen: Chosen, ways: Sequence[Chosen]) -> list[Prepared]:
    """The runs whose source and trainer feel the constants at all, by one run of each."""
    first = {one.cell: one for one in reversed(runs)}
    tried = [without(list(first.values()), source, {**chosen, **way}) for way in ways]
    find(one for each in zip(*tried, strict=True) for one in each)
    felt = {
        one.run.cell for one, *others in zip(*tried, strict=True) if len({log(each) for each in (one, *others)}) > 1
    }
    return [one for one in runs if one.cell in felt]


def _best(runs: Sequence[Prepared], source: str, chosen: Chosen, ways: Sequence[Chosen]) -> Chosen:
    """The first way, or the best of those that are better by more than sources differ on it."""
    each = misses_of(runs, source, [{**chosen, **way} for way in ways])
    if any(slot.kind == "kernels" for slot in ways[0]):  # a figure of the device, which has nothing below it
        return min(zip(ways, each, strict=True), key=lambda tried: statistics.fmean(tried[1].values()))[0]
    taken, most = ways[0], 0.0
    for way, missed in zip(ways[1:], each[1:], strict=True):
        gains = [each[0][of] - miss for of, miss in missed.items()]
        if statistics.fmean(gains) > max(most, _standard_error(gains)):
            taken, most = way, statistics.fmean(gains)
    return taken


def _standard_error(sample: Sequence[float]) -> float:
    """Of the mean; one source alone has none."""
    return statistics.stdev(sample) / math.sqrt(len(sample)) if len(sample) > 1 else 0.0


def candidates(group: Sequence[Slot], source: str) -> list[Chosen]:
    """What constants may be: those of the trainer below, what other software has for them whose choice did not see the
    source, and steps down from the largest of them."""
    slot = group[0]
    if slot.kind == "kernels":
        return [{slot: value} for value in REACHED]
    if slot.key in TOGETHER:
        return _together(group, source)
    names_of = (*(level.name for level in chain(slot.owner)[1:]), *names())  # where runs do not care, it is as below
    found = [
        trainer(name).constant(slot.key)
        for name in names_of
        if slot.key in own(trainer(name).name) and source not in in_view().get(Slot("trainers", name, slot.key), ())
    ]
    return [{slot: value} for value in dict.fromkeys([*found, *_steps(found)])]


def _together(group: Sequence[Slot], source: str) -> list[Chosen]:
    """Whole ways to count a time: one software's time for each launch is not mixed with another's for each layer.

    Where a part of the owner's way never saw the source, it is kept, and a way that differs in it is none.
    """
    keys = [slot.key for slot in group]
    kept = [key for key in TOGETHER if key not in keys]
    owner = trainer(group[0].owner)
    levels = [level.name for level in chain(owner.name)[1:]]
    found = [
        tuple(made.constant(key) for key in keys)
        for made in map(trainer, (*levels, *names()))
        if any(key in own(made.name) for key in TOGETHER)
        and not any(source in in_view().get(Slot("trainers", holder(made.name, key), key), ()) for key in TOGETHER)
        and all(made.constant(key) == owner.constant(key) for key in kept)
    ]
    largest = [max(found, key=lambda way: way[at]) for at, key in enumerate(keys) if key in TIMES] if found else []
    steps = [_scaled(way, share) for way in largest for share in STEPS]
    return [dict(zip(group, way, strict=True)) for way in dict.fromkeys([*found, *steps])]


def _scaled(way: tuple[Any, ...], share: float) -> tuple[Any, ...]:
    """Seconds times a share; how they are counted stays."""
    return tuple(value if isinstance(value, bool) else value * share for value in way)


def _steps(found: Sequence[Any]) -> Iterator[Any]:
    """Values between nothing and the largest, of a number or of a table with one; words have none between them."""
    numbers = [value for value in found if isinstance(value, float) and math.isfinite(value)]
    alone = [number for value in found for number in _alone(value)]
    for share in STEPS:
        if numbers:
            yield max(numbers) * share
        if alone:
            yield (("any", max(alone) * share),)


def _alone(value: Any) -> Iterator[float]:
    match value:
        case (("any", float(number)),):
            yield number
        case _:
            pass


def bears_on(slot: Slot, one: Prepared) -> bool:
    """Whether a run is predicted with the constant."""
    if slot.kind == "kernels":
        return slot.owner in (one.cluster.device.name, one.cluster.device.architecture)
    return holder(one.row.trainer, slot.key) == slot.owner


def misses_of(runs: Sequence[Prepared], source: str, ways: Sequence[Chosen]) -> list[dict[str, float]]:
    """The misses of several ways: each run is predicted in all of them before the next one is."""
    tried = [without(runs, source, way) for way in ways]
    find(one for each in zip(*tried, strict=True) for one in each)
    return [misses(each) for each in tried]


def misses(tried: Iterable[TriedRun]) -> dict[str, float]:
    """How far predictions are from the runs of each source; its trainers have the same weight."""
    cells: dict[tuple[str, str], list[float]] = {}
    for one in tried:
        cells.setdefault(one.run.cell, []).append(min(WORST, abs(log(one))))
    sources: dict[str, list[float]] = {}
    for (of, _), cell in cells.items():
        sources.setdefault(of, []).append(statistics.fmean(cell))
    return {of: statistics.fmean(means) for of, means in sources.items()}


def log_ratio(compared: ComparedRun) -> float:
    """Logarithm of measured over predicted."""
    assert compared.time is not None
    return math.log(compared.time.measured / compared.time.predicted)
