"""What limits a step: the limits and bottlenecks of the oracle paper (Kahira et al. 2021, Table 6), each with its rule.

A limit is inherent in the plan, a bottleneck in the software or the machine. Each rule has a threshold,
the number it was compared with, and what would relieve it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from foretell.cost.memory import MemoryUse

LAYERWISE = ("tp", "filter", "channel", "cp", "ep")
GRADIENTS = ("dp", "shard", "ps", "local", "gossip", "ring")
NEIGHBOURS = ("pp", "spatial")


class Bottleneck(msgspec.Struct, frozen=True):
    """One rule that fired."""

    name: str
    kind: str  # limit, bottleneck
    share: float  # of the step, or of the memory
    why: str
    relief: str


class Rule(NamedTuple):
    """A share of the step that is worth a word."""

    name: str
    kind: str
    belongs: Callable[[str], bool]  # which keys of the breakdown it adds up
    least: float
    why: str
    relief: str


def _along(*axes: str) -> Callable[[str], bool]:
    """Keys of exposed communication along these axes; groups over several count with the first."""
    return lambda key: key.startswith("exposed.") and key.split(".")[1].split("+")[0] in axes


def _is(name: str) -> Callable[[str], bool]:
    return lambda key: key == name


RULES = (
    Rule("gradient exchange", "limit", _along(*GRADIENTS), 0.05, "sums of gradients that nothing hides",
         "more samples or micro-batches a step, overlap, or fewer data ranks"),
    Rule("layer-wise collectives", "limit", _along(*LAYERWISE), 0.10, "activations travel inside layers",
         "fewer ranks on the axis, or the axis inside a node"),
    Rule("messages between neighbours", "bottleneck", _along(*NEIGHBOURS), 0.05, "halos and stages wait for messages",
         "larger parts, or faster links between neighbours"),
    Rule("pipeline bubble", "limit", _is("bubble"), 0.10, "stages wait for micro-batches",
         "more micro-batches, interleaved or zero-bubble schedules, fewer stages"),
    Rule("host", "bottleneck", _is("host"), 0.10, "the device waits for kernels to be started",
         "+compiled or +captured, larger micro-batches, fewer tensor ranks"),
    Rule("recomputation", "limit", _is("recompute"), 0.15, "the forward pass runs again",
         "+recompute:attention or none, if memory allows"),
    Rule("weight update", "limit", _is("optimizer"), 0.10, "every rank updates its weights",
         "zero1 shares the update out; fewer updates with larger batches"),
)  # fmt: skip


def bottlenecks(
    breakdown: Mapping[str, float], step: float, memory: MemoryUse, capacity: float
) -> Iterator[Bottleneck]:
    """The rules that fire for a prediction, largest share first."""
    found = [bottleneck for rule in RULES if (bottleneck := _fired(rule, breakdown, step))]
    found += list(_memory(memory, capacity))
    yield from sorted(found, key=lambda bottleneck: -bottleneck.share)


def _fired(rule: Rule, breakdown: Mapping[str, float], step: float) -> Bottleneck | None:
    share = sum(seconds for key, seconds in breakdown.items() if rule.belongs(key)) / step
    if share < rule.least:
        return None
    why = f"{rule.why}: {share:.0%} of the step (worth a word from {rule.least:.0%})"
    return Bottleneck(rule.name, rule.kind, share, why, rule.relief)


def _memory(memory: MemoryUse, capacity: float) -> Iterator[Bottleneck]:
    share = memory.device / capacity
    if share > 0.9:
        why = f"{share:.0%} of a device's memory at {memory.peak_moment} (worth a word from 90%)"
        largest = max(memory.by_kind, key=lambda kind: memory.by_kind[kind])
        yield Bottleneck(
            "memory", "bottleneck", share, why, RELIEF.get(largest, "more ranks, or smaller micro-batches")
        )
    states = sum(memory.by_kind.get(kind, 0.0) for kind in ("weights", "gradients", "states"))
    if states > 0.5 * memory.device and memory.device > 0.5 * capacity:
        why = f"weights, gradients and states are {states / memory.device:.0%} of what a rank holds"
        yield Bottleneck("memory redundancy", "bottleneck", states / capacity, why, "zero1, zero2 or zero3")


RELIEF = {
    "activations": "+recompute:block, smaller micro-batches, or tensor and context axes",
    "working": "smaller micro-batches, or a tensor axis (it divides the vocabulary too)",
    "states": "zero1, or +offload:optimizer",
    "weights": "zero3, tensor or pipeline axes",
    "gradients": "zero2",
}
