"""How many layers each pipeline stage has, by the rule of a trainer.

even        equal counts; the first stages take what is left over
parameters  the largest stage, embedding and head counted, is as small as it can be (DeepSpeed)
nanotron    a stage closes when the running sum of costs reaches its share; the head counts, the embedding does not
torchtitan  embedding and head count as a layer each; the first stages take what is left over
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from foretell.errors import unknown
from foretell.units import ceil_div


class Costs(msgspec.Struct, frozen=True):
    """What a layer and both ends cost, in any unit, mostly parameters."""

    layer: float = 1.0
    head: float = 0.0
    embedding: float = 0.0


EQUAL: Final = Costs()

Rule: TypeAlias = Callable[[int, int, Costs], tuple[int, ...]]


def layers_per_stage(rule: str, layers: int, stages: int, costs: Costs = EQUAL) -> tuple[int, ...]:
    """Layers of each stage, first to last; a rule may leave a stage with none."""
    if rule not in RULES:
        raise unknown("stage split", rule, RULES)
    return RULES[rule](layers, stages, costs)


def empty_stages(rule: str, layers: int, stages: int, costs: Costs = EQUAL) -> int:
    """Stages with nothing on them, neither a layer nor an end of the model."""
    if rule == "nanotron":
        return stages - len({0, *_walk(layers, stages, costs)})
    counts = layers_per_stage(rule, layers, stages, costs)
    inner = counts if rule == "even" else counts[1:-1]
    return sum(count < 1 for count in inner)


def short_ends(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Equal stages but for the ends, which have fewer layers: both of them, or the last one, which has the head.

    126 layers on 16 stages: 7/8x14/7, as Llama-3-405B was trained, and 8x15/6. None where layers divide.
    """
    middle = ceil_div(layers, stages)
    missing = middle * stages - layers
    for first in dict.fromkeys((missing // 2, 0)):
        last = missing - first
        if stages > 1 and 0 < last < middle:
            yield (middle - first, *[middle] * (stages - 2), middle - last)


def long_ends(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Equal stages but for the ends, which have one layer more: 34 layers on 32 stages are 2/1x30/2."""
    middle = layers // stages
    ends = layers - middle * (stages - 2)
    if stages > 2 and layers % stages and middle and ends <= 2 * (middle + 1):
        yield (ends - ends // 2, *[middle] * (stages - 2), ends // 2)


def _even(layers: int, stages: int, costs: Costs) -> tuple[int, ...]:
    share, rest = divmod(layers, stages)
    return tuple(share + (stage < rest) for stage in range(stages))


def _torchtitan(layers: int, stages: int, costs: Costs) -> tuple[int, ...]:
    if layers + 2 < stages:
        return _even(layers, stages, costs)
    counts = list(_even(layers + 2, stages, costs))
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def _nanotron(layers: int, stages: int, costs: Costs) -> tuple[int, ...]:
    walked = _walk(layers, stages, costs)[:layers]
    return tuple(walked.count(stage) for stage in range(stages))


def _walk(layers: int, stages: int, costs: Costs) -> list[int]:
    """The stage of every layer, and of what comes after: last norm, head, cast, loss."""
    total = layers * costs.layer + costs.head
    done, stage = 0.0, 0
    walked: list[int] = []
    for cost in (*(costs.layer for _ in range(layers)), 0.0, costs.head, 0.0, 0.0):
        walked.append(stage)
        done += cost
        # The source asks for more than the share; the memory of published runs fits "at least" better.
        if stage < stages - 1 and done >= total * (stage + 1) / stages:
            stage += 1
    return walked


def _parameters(layers: int, stages: int, costs: Costs) -> tuple[int, ...]:
    """Least largest stage: the candidates are sums of neighbouring layers, with or without the ends."""
    sums = (
        count * costs.layer + ends
        for count in range(layers + 1)
        for ends in (0.0, costs.embedding, costs.head, costs.embedding + costs.head)
    )
    for limit in sorted(set(sums)):
        counts = _filled(layers, stages, costs, limit)
        if counts:
            return counts
    return _even(layers, stages, costs)


def _filled(layers: int, stages: int, costs: Costs, limit: float) -> tuple[int, ...]:
    """Stages filled up to a limit from the first on; empty if the layers do not fit."""
    counts: list[int] = []
    left = layers
    for stage in range(stages):
        ends = costs.embedding * (stage == 0) + costs.head * (stage == stages - 1)
        if ends > limit:
            return ()
        taken = min(left, int((limit - ends) / costs.layer + 1e-9))
        counts.append(taken)
        left -= taken
    return tuple(counts) if left == 0 else ()


RULES: Final[dict[str, Rule]] = {
    "even": _even,
    "parameters": _parameters,
    "nanotron": _nanotron,
    "torchtitan": _torchtitan,
}
