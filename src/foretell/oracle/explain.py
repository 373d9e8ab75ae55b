"""What limits a step: the limits and bottlenecks of the oracle paper (Kahira et al. 2021, Table 6), each with its rule.

A limit is inherent in the plan, a bottleneck in the software or the machine. Each rule has a threshold,
the number it was compared with, and what would relieve it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from foretell.cost.memory import MemoryUse
from foretell.oracle.causes import NO_CAUSES, Causes, Exhausted
from foretell.oracle.training import Training

LAYERWISE = ("tp", "filter", "channel", "cp", "ep")
GRADIENTS = ("dp", "shard", "ps", "local", "gossip", "ring")
NEIGHBOURS = ("pp", "spatial")


FULL = 0.9
"""Share of a device's memory from which the allocator has to give back and fetch again what it holds (Megatron-LM of
Kahira et al.: out of memory despite free memory in about 15 % of runs)."""

KEPT = ("weights", "gradients", "states", "resting")
"""What a rank holds from step to step, by kind; who only measures sees it in one piece."""

WORTH = 0.05
"""Share of the step from which a cause is worth a word."""


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
    Rule("input", "bottleneck", _is("input"), WORTH, "ranks wait for samples that are not read and decoded yet",
         "more readers or decoded data (--input-rate), smaller batches, or more nodes that read side by side"),
    Rule("copies to the host", "bottleneck", _is("other"), WORTH, "what was moved to the host's memory comes and goes",
         "less +offload, or more ranks that share the states"),
    Rule("weight update", "limit", _is("optimizer"), 0.10, "every rank updates its weights",
         "zero1 shares the update out; fewer updates with larger batches"),
)  # fmt: skip


def bottlenecks(
    breakdown: Mapping[str, float],
    step: float,
    memory: MemoryUse,
    capacity: float,
    causes: Causes = NO_CAUSES,
    run: Training | None = None,
) -> Iterator[Bottleneck]:
    """The rules that fire for a prediction, largest share first; then axes that can have no more ranks."""
    found = [bottleneck for rule in RULES if (bottleneck := _fired(rule, breakdown, step))]
    found += list(_memory(memory, capacity))
    found += list(_behind(causes, step))
    found += list(_whole_run(run)) if run else []
    yield from sorted(found, key=lambda bottleneck: -bottleneck.share)
    yield from _exhausted(causes)


def _behind(causes: Causes, step: float) -> Iterator[Bottleneck]:
    """Causes that are no key of the breakdown."""
    if causes.congestion >= WORTH * step:
        share = causes.congestion / step
        why = (
            f"messages take up to {causes.slowdown:.1f} times as long as alone on idle links: "
            f"{share:.0%} of the step (worth a word from {WORTH:.0%})"
        )
        relief = "fewer groups that use the network at once (a larger inner axis), more ports, or a faster network"
        yield Bottleneck("network congestion", "bottleneck", share, why, relief)
    if causes.imbalance >= WORTH * step:
        share = causes.imbalance / step
        why = (
            f"the fullest pipeline rank computes {causes.unevenness:.2f} times as long as the mean: "
            f"{share:.0%} of the step (worth a word from {WORTH:.0%})"
        )
        relief = "another split of the layers (pp4:1f1b,split=...), interleaved stages, or fewer of them"
        yield Bottleneck("workload balancing", "limit", share, why, relief)
    if causes.redundant >= WORTH * step:
        share = causes.redundant / step
        why = (
            f"operators that an axis does not divide run whole on all its ranks: {share:.0%} of the step "
            f"by the device's peaks (worth a word from {WORTH:.0%})"
        )
        relief = "tp:sp, a trainer that leaves the logits in shares (--trainer), or fewer ranks on the axis"
        yield Bottleneck("computation redundancy", "bottleneck", share, why, relief)


def _whole_run(run: Training) -> Iterator[Bottleneck]:
    """What a run spends beside its steps; shares are of the time by the clock."""
    staging = run.staging_seconds / run.seconds
    if staging >= WORTH:
        why = f"data is copied to the nodes before the first step: {staging:.0%} of the run (from {WORTH:.0%})"
        yield Bottleneck("staging", "bottleneck", staging, why, "read while training, or faster storage")
    lost = 1 - run.goodput - staging
    if lost >= WORTH:
        why = f"checkpoints, failures and work done again take {lost:.0%} of the run (worth a word from {WORTH:.0%})"
        yield Bottleneck("goodput", "bottleneck", lost, why, "faster storage, a faster restart, or fewer devices")


def _exhausted(causes: Causes) -> Iterator[Bottleneck]:
    for one in causes.exhausted:
        why = f"{one.axis}{one.ranks} is at most {one.most} ({one.of}): it cannot be doubled"
        yield Bottleneck("number of ranks", "limit", one.ranks / one.most, why, _room_for_ranks(one))


def _room_for_ranks(one: Exhausted) -> str:
    if one.axis != "dp":
        return "ranks on another axis"
    return "fewer micro-batches, or a larger batch" if one.microbatches > 1 else "a larger batch"


def _fired(rule: Rule, breakdown: Mapping[str, float], step: float) -> Bottleneck | None:
    share = sum(seconds for key, seconds in breakdown.items() if rule.belongs(key)) / step
    if share < rule.least:
        return None
    why = f"{rule.why}: {share:.0%} of the step (worth a word from {rule.least:.0%})"
    return Bottleneck(rule.name, rule.kind, share, why, rule.relief)


def _memory(memory: MemoryUse, capacity: float) -> Iterator[Bottleneck]:
    share = memory.device / capacity
    if share > FULL:
        why = f"{share:.0%} of a device's memory at {memory.peak_moment} (worth a word from {FULL:.0%})"
        largest = max(memory.by_kind, key=lambda kind: memory.by_kind[kind])
        yield Bottleneck(
            "memory", "bottleneck", share, why, RELIEF.get(largest, "more ranks, or smaller micro-batches")
        )
    tensors = (memory.device - memory.reserved + memory.allocated) / capacity
    if share > FULL and tensors <= FULL:
        why = (
            f"tensors take {tensors:.0%} of a device's memory and the allocator's gaps {share - tensors:.0%}: "
            f"together above {FULL:.0%} it stalls, or fails despite free memory"
        )
        relief = "expandable segments, memory of fixed sizes, or smaller micro-batches"
        yield Bottleneck("memory stalling", "bottleneck", share - tensors, why, relief)
    states = sum(memory.by_kind.get(kind, 0.0) for kind in KEPT)
    if states > 0.5 * memory.device and memory.device > 0.5 * capacity:
        why = (
            f"weights, gradients and states are {states / memory.device:.0%} of what a rank holds "
            f"(worth a word from 50%, where half of the memory is taken)"
        )
        yield Bottleneck("memory redundancy", "bottleneck", states / capacity, why, "zero1, zero2 or zero3")


RELIEF = {
    "activations": "+recompute:block, smaller micro-batches, or tensor and context axes",
    "working": "smaller micro-batches, or a tensor axis (it divides the vocabulary too)",
    "states": "zero1, or +offload:optimizer",
    "weights": "zero3, tensor or pipeline axes",
    "gradients": "zero2",
}
