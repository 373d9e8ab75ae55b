# pyright: basic
"""What messages of a rehearsal cost its step on a GPU: the same steps once more, without those of one axis or of all.

Where a processor computes, its thread stands still for a message, and the time that it does is told as it passes
(`waiting.py`). On a GPU a stream waits for a stream, of which nobody hears. But the messages are ours: with no time for
them the same step is shorter by what was exposed, phase by phase.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

from foretell.runtime.clock import Clock
from foretell.runtime.rehearsed_world import RehearsedWorld
from foretell.runtime.training import RankTraining

STEPS = 3
"""Steps of which a median is taken; one more before them is dropped."""

PHASES = ("forward", "backward", "exchange", "optimizer")
"""In which messages travel. What a rank of a pipeline waits for between its passes is none of them."""

Phases = dict[str, float]


def tell_exposed(training: RankTraining, world: RehearsedWorld) -> None:
    """Book what was exposed of measured steps under its axis, and take it from the phase that it lay in."""
    axes = {frozenset(ranks): "+".join(names) for ranks, names in training.mesh.groups().items()}
    heard = {ranks: axes[frozenset(ranks)] for ranks in world.spoken if frozenset(ranks) in axes}
    if not heard:
        return
    whole = {name: median(seconds) for name, seconds in training.clock.phases.items()}
    alone = _without(training, world, world.spoken)
    hidden = {name: max(0.0, whole[name] - alone.get(name, 0.0)) for name in whole}
    by_axis = list(dict.fromkeys(heard.values()))
    parts = {axis: dict.fromkeys(hidden, 1.0) for axis in by_axis}
    if len(by_axis) > 1:
        for axis in by_axis:
            left = _without(training, world, [ranks for ranks, name in heard.items() if name == axis])
            parts[axis] = {name: max(0.0, whole[name] - left.get(name, 0.0)) for name in hidden}
    book(training.clock, whole, hidden, parts)


def book(clock: Clock, whole: Mapping[str, float], hidden: Phases, parts: Mapping[str, Phases]) -> None:
    """Take from each phase the share of it that was exposed, and divide it among axes as each saves without the others;
    equally where none does, since another is there to wait for."""
    for name in PHASES:
        share = hidden.get(name, 0.0) / whole[name] if whole.get(name) else 0.0
        if not share:
            continue
        own, saved = clock.phases[name], sum(part[name] for part in parts.values())
        for axis, part in parts.items():
            mine = share * (part[name] / saved if saved else 1 / len(parts))
            before = clock.phases.setdefault(f"exposed.{axis}", [0.0] * len(own))
            clock.phases[f"exposed.{axis}"] = [had + step * mine for had, step in zip(before, own, strict=True)]
        clock.phases[name] = [step * (1 - share) for step in own]


def _without(training: RankTraining, world: RehearsedWorld, silent: Collection[tuple[int, ...]]) -> Phases:
    """Median seconds of the phases of steps in which some messages take no time."""
    measured, training.clock = training.clock, Clock(training.device)
    world.silent = frozenset(silent)
    for _ in range(STEPS + 1):
        training.step()
    world.silent = frozenset()
    found = {name: median(seconds[1:]) for name, seconds in training.clock.phases.items()}
    training.clock = measured
    return found
