"""Computation and messages of measured steps apart, and constants of a trainer that were chosen on them.

Where a source tells the parts of its steps apart, a constant is chosen on the part that it is of, never on a total: a
total that is right may be two errors. Each run says by itself which value would be right, since a part is linear in its
constant or in one over it; what is chosen is the middle over the runs of a model, and then over models. So constants
without one model are found at once, and that model is predicted with them: the score of a model that was not seen.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.oracle.predict import Prediction, predict
from foretell.plan.figures import look_up
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer, trainer
from foretell.timeline.observation import Observation
from foretell.validation.evaluate import Predictor, question
from foretell.validation.in_view import changed
from foretell.validation.study import MeasuredRun, StepParts


class PartConstant(NamedTuple):
    """A constant of a trainer that one part of some strategies' steps shows."""

    key: str
    word: str  # its entry, where the constant is a table
    part: str  # compute, messages
    strategies: tuple[str, ...]
    tried: tuple[float, float]  # two values, between which the part is drawn as a line
    rate: bool = False  # whether the part is linear in one over it
    most: float = float("inf")


CONSTANTS: Final = {
    "chainer": (
        PartConstant("splits.joins", "any", "compute", ("filter", "channel"), (0.0, 30.0)),
        PartConstant("splits.joins", "dp", "compute", ("data+filter",), (0.0, 30.0)),
        PartConstant("splits.halo", "", "compute", ("data+spatial",), (0.0, 1e-3)),
        PartConstant("gradients.rate", "", "messages", ("data",), (0.5, 1.0), rate=True, most=1.0),
        PartConstant("splits.reached", "channel", "messages", ("channel",), (0.5, 1.0), rate=True, most=1.0),
        PartConstant("splits.reached", "dp", "messages", ("data+filter",), (0.5, 1.0), rate=True, most=1.0),
        PartConstant("splits.images", "", "messages", ("data+spatial",), (0.6e9, 1.2e9), rate=True),
    )
}
"""By trainer, in the order of choosing."""

Chosen: TypeAlias = Mapping[PartConstant, float]


def parts_of(found: Observation) -> StepParts:
    """Seconds of messages that are waited for, and of all else."""
    messages = sum(seconds for name, seconds in found.breakdown.items() if name.startswith("exposed."))
    return StepParts(found.step_seconds - messages, messages)


def choose(rows: Iterable[MeasuredRun]) -> dict[PartConstant, float]:
    """The constants that runs whose parts are known would have, one after the other; where none shows one, that of the
    trainer below."""
    told = [row for row in rows if row.parts is not None]
    found: dict[PartConstant, float] = {}
    for name, constants in CONSTANTS.items():
        for constant in constants:
            by_model: dict[str, list[float]] = defaultdict(list)
            for row in told:
                shows = row.trainer == name and row.subsets[0] in constant.strategies
                value = _wanted(constant, row, found) if shows else None
                if value is not None:
                    by_model[row.model].append(value)
            middles = [statistics.median(values) for values in by_model.values()]
            found[constant] = statistics.median(middles) if middles else _below(constant, name)
    return found


def _below(constant: PartConstant, name: str) -> float:
    value = trainer(trainer(name).based_on).constant(constant.key)
    return look_up(value, constant.word) if constant.word else value


def _wanted(constant: PartConstant, row: MeasuredRun, others: Chosen) -> float | None:
    """Where the line through two predictions meets the measured part; None where it does not depend on the constant."""
    setting, cluster = question(row)
    made = with_constants(setting.trainer, others)

    def part(value: float) -> float:
        runs = msgspec.structs.replace(setting, trainer=with_constants(made, {constant: value}))
        return getattr(parts_of(predict(runs, cluster)), constant.part)

    low, high = map(part, constant.tried)
    first, last = (1 / value if constant.rate else value for value in constant.tried)
    if low == high or row.parts is None:
        return None
    place = first + (getattr(row.parts, constant.part) - low) * (last - first) / (high - low)
    if not constant.rate:
        return max(0.0, place)
    return min(constant.most, 1 / place) if place > 0 else None


def with_constants(made: Trainer, values: Chosen) -> Trainer:
    """The trainer with other constants."""
    for constant, value in values.items():
        entry: Any = value
        if constant.word:
            entry = tuple({**dict(made.constant(constant.key)), constant.word: value}.items())
        made = changed(made, {constant.key: entry})
    return made


def predictor_with(values: Chosen) -> Predictor:
    """Predicts with these constants of the trainer."""

    def one(setting: Setting, cluster: Cluster) -> Prediction:
        made = setting.trainer
        own = {one: value for one, value in values.items() if one in CONSTANTS.get(made.name, ())}
        return predict(msgspec.structs.replace(setting, trainer=with_constants(made, own)), cluster)

    return one
