"""What is alive at the fullest moment of the fullest rank: its largest tensors by name.

The moment is that of the prediction. The allocation trace of its stage says what the slot has alive at its fullest
change, and what other micro-batches keep; weights with their gradients and states are there for the whole step.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from foretell.cost.memory import WORK, MemoryUse
from foretell.cost.price import PricedProgram, weight_buffers
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.plan.schedule import Slot
from foretell.program.activation_memory import StageTrace
from foretell.program.allocation_trace import Storage
from foretell.program.expand import layer_names
from foretell.program.weights import Weight
from foretell.timeline.memory_timeline import MemoryMoment, plan_peak

MOST = 10
"""Lines that are told."""


ON_TOP = ("allocator", "context", "communicators")
"""What the device reports beyond tensors: constants of the trainer."""


class AliveTensors(msgspec.Struct, frozen=True):
    """Equal tensors that are alive: of several layers, and of several micro-batches."""

    name: str
    kind: str  # activation, gradient, gathered, or a kind of memory that rests
    count: int
    bytes: float  # of all together


def alive(plan: PricedProgram, cluster: Cluster, used: MemoryUse, most: int = MOST) -> tuple[AliveTensors, ...]:
    """The largest of what is alive, largest first; what is not told is the last line.

    All together take what the prediction says that the rank does, also where a measured run corrected that.
    """
    own = [at for at, size in enumerate(used.by_stage) if size == used.device]  # on unlike devices not the largest
    peak = plan_peak(plan, cluster, own)
    scale = used.device / peak.by_stage[peak.rank]
    tensors = [*_activations(plan, peak.moment), *_persistent(plan, peak.rank, peak.moment)]
    found = [msgspec.structs.replace(one, bytes=one.bytes * scale) for one in tensors]
    found += [AliveTensors(kind, kind, 1, used.by_kind[kind]) for kind in ON_TOP if used.by_kind.get(kind)]
    found.sort(key=lambda one: -one.bytes)
    told, rest = found[:most], found[most:]
    if rest:
        count = sum(one.count for one in rest)
        told.append(AliveTensors(f"{count:,} smaller ones", "others", count, math.fsum(one.bytes for one in rest)))
    return tuple(told)


def _persistent(plan: PricedProgram, rank: int, moment: MemoryMoment) -> Iterator[AliveTensors]:
    """Weights, gradients and states by name; what is known by its kind only (a trainer's constant) by that."""
    by_name = _weights(plan, rank)
    for kind, size in moment.parts.items():
        own = by_name.get(kind, [])
        if own and math.isclose(_sum(own), size, rel_tol=1e-9):
            yield from own
        elif size and kind not in WORK:
            yield AliveTensors(kind, kind, 1, size)


def _weights(plan: PricedProgram, rank: int) -> dict[str, list[AliveTensors]]:
    """Weights of a pipeline rank with their gradients and states, equal ones of several layers together."""
    program = plan.program
    versions = program.schedule.weight_versions(rank, program.ranks)
    equal: dict[tuple[int, int], list[Weight]] = defaultdict(list)
    for stage in (at for at in range(program.partition.count) if program.partition.rank[at] == rank):
        for weight in program.own(stage):
            equal[weight.key[:2]].append(weight)
    found: dict[str, list[AliveTensors]] = defaultdict(list)
    for (block, number), weights in equal.items():
        count, resting = len(weights), program.weight_state.resting(weights[:1], versions, evenly=True)
        layers = {weight.key[2] for weight in weights}
        name = _layers(program.graph, block, program.graph.blocks[block].tensors[number].name, layers)
        parts = (("weights", resting.weights), ("gradients", resting.gradients), ("states", resting.states))
        for kind, size in parts:
            if size:
                text = name if kind == "weights" else f"{name}, {kind}"
                found[kind].append(AliveTensors(text, kind, count, size * count))
    return found


# activations


def _activations(plan: PricedProgram, moment: MemoryMoment) -> list[AliveTensors]:
    """Tensors of the passes by name.

    By their kinds alone where part of them waits on the host, or several layers run again together: how much these hold
    is derived from the traces of layers, but they have none of their own.
    """
    if moment.slot is None:
        return []
    kinds = [AliveTensors(kind, kind, 1, moment.parts[kind]) for kind in WORK if moment.parts[kind]]
    found = _named(plan, moment, moment.slot)
    return found if math.isclose(_sum(found), _sum(kinds), rel_tol=1e-9) else kinds


def _sum(found: Iterable[AliveTensors]) -> float:
    return math.fsum(one.bytes for one in found)


def _named(plan: PricedProgram, moment: MemoryMoment, slot: Slot) -> list[AliveTensors]:
    """What the slot has alive, and what other micro-batches keep."""
    others = Counter(moment.in_flight)
    if slot.kind != "F":
        others[slot.stage] -= 1
    pieces = [(_kept(plan, stage), count) for stage, count in others.items() if count]
    gathered: list[AliveTensors] = []
    if "new gradients" not in moment.parts:  # else its own activations are gone
        storages, gathered = _at_peak(plan, slot, made=not moment.parts["gradients"])  # which rest, or are made now
        pieces.append((storages, 1))
    count: Counter[_Group] = Counter()
    layers: dict[_Group, set[int]] = defaultdict(set)
    for held, times in pieces:
        for (block, tensor, repetition, what), size in held.items():
            group = _Group(block, tensor, what, size)
            count[group] += times
            layers[group].add(repetition)
    graph = plan.program.graph
    named = (
        AliveTensors(_name(graph, group, layers[group]), _kind(group), times, group.size * times)
        for group, times in count.items()
        if group.size
    )
    return [*named, *gathered]


Held: TypeAlias = dict[Storage, float]


class _Group(NamedTuple):
    """Tensors that are alike but for their layer and micro-batch."""

    block: int
    tensor: int
    what: str
    size: float


def _trace(plan: PricedProgram, stage: int) -> StageTrace:
    program = plan.program
    return program.rank_program.trace(program.partition.runs(stage), pipelined=program.ranks > 1)


def _samples(plan: PricedProgram, stage: int) -> Held:
    """The samples that a stage is given for each micro-batch."""
    partition, layout = plan.program.partition, plan.program.layout
    inputs = partition.signature_runs[plan.stages[stage]].inputs
    return {(*home, 0, ""): layout.held_bytes(*home) for home in inputs}


def _kept(plan: PricedProgram, stage: int) -> Held:
    """What a micro-batch keeps on a stage for its backward pass."""
    return _trace(plan, stage).kept() | _samples(plan, stage)


def _at_peak(plan: PricedProgram, slot: Slot, made: bool) -> tuple[Held, list[AliveTensors]]:
    """What a slot has alive when it is fullest, and the weights that are gathered for it.

    `made`: gradients of weights are among it, as far as the backward pass has made them.
    """
    program, traffic = plan.program, plan.traffic[plan.stages[slot.stage]]
    runs = program.partition.runs(slot.stage)
    root = [AliveTensors("gathered root weights", "gathered", 1, traffic.root_bytes)] if traffic.root_bytes else []
    if not runs:
        return _samples(plan, slot.stage), root
    weights = weight_buffers(traffic, program.weight_state.reshards, made)
    found = _trace(plan, slot.stage).at_peak(slot.kind == "F", weights)
    gathered = [
        AliveTensors(f"gathered {layer_names(program.graph, run)} weights", "gathered", times, size.own * times)
        for run, size, times in zip(runs, weights.gathered, found.gathered_layers, strict=False)
        if size.own * times
    ]
    if found.messages:
        of = layer_names(program.graph, runs[found.run])
        gathered.append(AliveTensors(f"messages of weights beside {of}", "gathered", 1, found.messages))
    return found.storages | _samples(plan, slot.stage), [*gathered, *root]


# names


def _kind(group: _Group) -> str:
    return {"gradient": "gradient", "made": "gradient", "gathered": "gathered"}.get(group.what, "activation")


def _name(graph: Graph, group: _Group, repetitions: set[int]) -> str:
    block = graph.blocks[group.block]
    tensor = block.tensors[group.tensor]
    node = next((one for one in block.nodes if group.tensor in (*one.outputs, *one.keeps)), None)
    if node is None:
        text = _layers(graph, group.block, tensor.name or f"{tensor.role} {group.tensor}", repetitions)
    else:
        made = "output" if group.tensor in node.outputs else (tensor.name or "kept")
        kind = getattr(node.operator, "function", node.kind)  # what an element-wise operator computes
        text = f"{_layers(graph, group.block, node.path, repetitions)} {kind} {made}".strip()
    what = "new gradient" if group.what == "made" else group.what
    return f"{text}, {what}" if what else text


def _layers(graph: Graph, at: int, path: str, repetitions: set[int]) -> str:
    """A path with all layers that it stands for: layers.0..11.attention."""
    block, parts = graph.blocks[at], path.split(".")
    if block.times > 1 and block.place < len(parts) and parts[block.place].isdigit():
        numbers = [int(parts[block.place]) + repetition * block.stride for repetition in sorted(repetitions)]
        few, many = str(numbers[0]), f"{numbers[0]}..{numbers[-1]}"
        parts[block.place] = few if len(numbers) == 1 else many
    return ".".join(parts)
