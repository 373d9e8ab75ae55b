"""A model and the task it is trained on, with all that every engine has in common: batch, optimizer, rate, target."""

from __future__ import annotations

import msgspec

from foretell.registry import OpenSet

PAIRS = OpenSet("foretell.bench.pairs", "pair")


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two that the survey has, in its size or smaller."""

    title: str
    model: str
    task: str
    batch: int  # samples of a step, for each rank
    optimizer: str
    rate: float
    epoch_samples: int = 0  # where the task cannot tell: random numbers stand for a set of this size
    steps: int  # that show how well it learns
    look: int  # steps between two looks at held-out data; 0: none is held out
    target: float | None  # of the metric
    region: str = ""  # the layers whose images are large enough to be cut: `spatial` is for these
    device: str = "cpu"
    precision: str = ""  # a policy of the plan


def pair(name: str) -> Pair:
    """The pair of a name."""
    found: Pair = PAIRS[name.replace("-", "_")].PAIR
    return found


def names() -> tuple[str, ...]:
    return tuple(PAIRS)
