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
from foretell.oracle.relief import WAYS, relief
from foretell.oracle.training import Training
from foretell.plan.plan import Plan
from foretell.units import show_percent

LAYERWISE = ("tp", "filter", "channel", "cp", "ep")
GRADIENTS = ("dp", "shard", "ps", "local", "gossip", "ring")
NEIGHBOURS = ("pp", "spatial")


FULL = 0.9
"""Share of a device's memory from which the allocator has to give back and fetch again what it holds (Megatron-LM of
Kahira et al.: out of memory despite free memory in about 15 % of runs)."""

KEPT = ("weights", "gradients", "states", "resting")
"""What a rank holds from step to step, by kind; who only measures sees it in one piece."""

WORTH = 0.05
"""Share of the step from which a cause is printed."""


class Bottleneck(msgspec.Struct, frozen=True):
    """One rule that fired."""

    name: str
    kind: str  # limit, bottleneck
    share: float  # of the step, or of the memory
    why: str
    relief: str


class Rule(NamedTuple):
    """A share of the step that is printed from a threshold on."""

    name: str
    kind: str
    belongs: Callable[[str], bool]  # which keys of the breakdown it adds up
    least: float
    why: str
    relief: str  # or what of, where it depends on the plan (`oracle.relief`)


def _along(*axes: str) -> Callable[[str], bool]:
    """Keys of exposed communication along these axes; groups over several count with the first."""
    return lambda key: key.startswith("exposed.") and key.split(".")[1].split("+")[0] in axes


def _is(name: str) -> Callable[[str], bool]:
    return lambda key: key == name


BUBBLE = "pipeline bubble"

RULES = (
    Rule("gradient exchange", "limit", _along(*GRADIENTS), 0.05, "exposed gradient and weight communication",
         "a larger batch, more accumulation steps, overlap, or fewer data-parallel ranks"),
    Rule("layer-wise collectives", "limit", _along(*LAYERWISE), 0.10, "exposed collectives inside layers (TP, CP, EP)",
         "a smaller degree, or a group that stays inside a node"),
    Rule("messages between neighbours", "bottleneck", _along(*NEIGHBOURS), 0.05, "exposed point-to-point messages",
         "fewer stages or larger parts, or faster links between neighbours"),
    Rule(BUBBLE, "limit", _is("bubble"), 0.10, "pipeline stages idle",
         "more micro-batches, an interleaved or zero-bubble schedule, fewer stages"),
    Rule("host", "bottleneck", _is("host"), 0.10, "the GPU waits for kernel launches",
         "+compiled or +captured, larger micro-batches, a smaller TP degree"),
    Rule("recomputation", "limit", _is("recompute"), 0.15, "activations are recomputed in the backward pass",
         "recompute"),
    Rule("input", "bottleneck", _is("input"), WORTH, "the GPUs wait for the data loader",
         "more data-loader workers or decoded data (--input-rate), a smaller batch, or more nodes"),
    Rule("copies to the host", "bottleneck", _is("other"), WORTH, "offloaded tensors come and go",
         "less +offload, or more ranks that shard the optimizer states"),
    Rule("paging", "bottleneck", _is("paging"), WORTH, "memory beyond the device goes to the host and comes back",
         "fewer samples at a time, +recompute, or more ranks"),
    Rule("weight update", "limit", _is("optimizer"), 0.10, "the optimizer step",
         "update"),
)  # fmt: skip


def bottlenecks(
    breakdown: Mapping[str, float],
    step: float,
    memory: MemoryUse,
    capacity: float,
    causes: Causes = NO_CAUSES,
    run: Training | None = None,
    plan: Plan | None = None,
) -> Iterator[Bottleneck]:
    """The rules that fire for a prediction, largest share first; then axes that can have no more ranks.

    What would relieve them is less than that of any plan by what `plan` does already.
    """
    fired = [bottleneck for rule in RULES if (bottleneck := _fired(rule, breakdown, step, plan))]
    found = [_split_bubble(one, causes.uneven) if one.name == BUBBLE else one for one in fired]
    found += list(_memory(memory, capacity, plan))
    found += list(_behind(causes, step, plan))
    found += list(_whole_run(run)) if run else []
    yield from sorted(found, key=lambda bottleneck: -bottleneck.share)
    yield from _exhausted(causes)


def of_forward(found: Bottleneck) -> Bottleneck:
    """A rule that fired where nothing is trained: what it is about then, and what relieves it."""
    return msgspec.structs.replace(found, **FORWARD.get(found.name, {}))


FORWARD: Mapping[str, Mapping[str, str]] = {
    "gradient exchange": {"name": "weight gathers", "relief": "a larger batch, or weights that are replicated (dp)"},
    BUBBLE: {"relief": "more micro-batches, an interleaved schedule, or fewer stages"},
    "memory": {"relief": "smaller micro-batches, or zero3, TP or PP, which shard the weights"},
    "memory redundancy": {"relief": "zero3, TP or PP"},
}
"""Advice that is another one without gradients, states and kept activations."""


def _behind(causes: Causes, step: float, plan: Plan | None) -> Iterator[Bottleneck]:
    """Causes that are no key of the breakdown."""
    if causes.congestion >= WORTH * step:
        share = causes.congestion / step
        why = (
            f"messages take up to {causes.slowdown:.1f} times as long as alone on idle links: "
            f"{_share(share, 'the step', WORTH)}"
        )
        fewer = "fewer groups that use the network at once (a larger inner axis), more NICs, or a faster network"
        yield Bottleneck("network congestion", "bottleneck", share, why, fewer)
    if causes.imbalance >= WORTH * step:
        share = causes.imbalance / step
        why = (
            f"stage imbalance: the slowest pipeline rank computes {causes.unevenness:.2f} times as long as the mean, "
            f"{_share(share, 'the step', WORTH)}"
        )
        other = "another split of the layers (pp4:1f1b,split=...), an interleaved schedule, or fewer stages"
        yield Bottleneck("workload balancing", "limit", share, why, other)
    if causes.redundant >= WORTH * step:
        share = causes.redundant / step
        why = f"operators that are replicated, not sharded, over an axis: at least {_share(share, 'the step', WORTH)}"
        yield Bottleneck("computation redundancy", "bottleneck", share, why, relief("replicated", plan))


def _whole_run(run: Training) -> Iterator[Bottleneck]:
    """What a run spends beside its steps; shares are of the time by the clock."""
    staging = run.staging_seconds / run.seconds
    if staging >= WORTH:
        why = f"data is copied to the nodes before the first step: {_share(staging, 'the run', WORTH)}"
        yield Bottleneck("staging", "bottleneck", staging, why, "read while training, or faster storage")
    lost = 1 - run.goodput - staging
    if lost >= WORTH:
        why = f"checkpoints, failures and repeated steps take {_share(lost, 'the run', WORTH)}"
        yield Bottleneck("goodput", "bottleneck", lost, why, "faster storage, a faster restart, or fewer GPUs")


def _exhausted(causes: Causes) -> Iterator[Bottleneck]:
    for one in causes.exhausted:
        yield Bottleneck("number of ranks", "limit", one.ranks / one.most, _cannot_grow(one), _room_for_ranks(one))


def _cannot_grow(one: Exhausted) -> str:
    """Why an axis cannot be doubled, as people say it."""
    if one.axis == "dp" and one.ranks == one.most:
        return "data parallelism cannot grow: the micro-batch size is already 1"
    kind = KINDS.get(one.axis, f"{one.axis} parallelism")
    return f"{kind} cannot double: {one.axis}{one.ranks}, and at most {one.most} ({one.of})"


def _room_for_ranks(one: Exhausted) -> str:
    if one.axis != "dp":
        return "another kind of parallelism"
    return "fewer micro-batches, or a larger batch" if one.microbatches > 1 else "a larger batch"


KINDS = {
    "dp": "data parallelism",
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
}
"""Axes as people say them."""


def _fired(rule: Rule, breakdown: Mapping[str, float], step: float, plan: Plan | None) -> Bottleneck | None:
    share = sum(seconds for key, seconds in breakdown.items() if rule.belongs(key)) / step
    if share < rule.least:
        return None
    why = f"{rule.why}: {_share(share, 'the step', rule.least)}"
    return Bottleneck(
        rule.name, rule.kind, share, why, relief(rule.relief, plan) if rule.relief in WAYS else rule.relief
    )


def _split_bubble(bubble: Bottleneck, uneven: float) -> Bottleneck:
    """A bubble with what of it is the schedule's and what is stage imbalance, and what relieves the larger part."""
    if uneven * bubble.share < WORTH:
        return bubble
    parts = [show_percent(part * bubble.share, 0) for part in (1 - uneven, uneven)]
    why = f"{bubble.why}, {parts[0]} by the schedule and {parts[1]} by stage imbalance"
    relief = "an even split of the layers (pp4:1f1b,split=...), or an interleaved schedule"
    return msgspec.structs.replace(bubble, why=why, relief=relief if uneven > 0.5 else bubble.relief)


def _share(value: float, whole: str, least: float) -> str:
    """28 % of the step (threshold 10 %)."""
    return f"{show_percent(value, 0)} of {whole} (threshold {show_percent(least, 0)})"


def _memory(memory: MemoryUse, capacity: float, plan: Plan | None) -> Iterator[Bottleneck]:
    share = memory.device / capacity
    if share > FULL:
        why = f"{_share(share, 'device memory', FULL)}, during {memory.peak_moment}"
        largest = max(memory.by_kind, key=lambda kind: memory.by_kind[kind])
        yield Bottleneck("memory", "bottleneck", share, why, relief(largest, plan))
    tensors = (memory.device - memory.reserved + memory.allocated) / capacity
    if share > FULL and tensors <= FULL:
        why = (
            f"tensors take {show_percent(tensors, 0)} of device memory and fragmentation "
            f"{show_percent(share - tensors, 0)}: above {show_percent(FULL, 0)} together the allocator stalls, "
            f"or fails despite free memory"
        )
        whole = "expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF), or smaller micro-batches"
        yield Bottleneck("memory stalling", "bottleneck", share - tensors, why, whole)
    states = sum(memory.by_kind.get(kind, 0.0) for kind in KEPT)
    if states > 0.5 * memory.device and memory.device > 0.5 * capacity:
        why = (
            f"weights, gradients and optimizer states are {show_percent(states / memory.device, 0)} of a rank's memory "
            f"(threshold 50 %)"
        )
        yield Bottleneck("memory redundancy", "bottleneck", states / capacity, why, relief("redundancy", plan))
