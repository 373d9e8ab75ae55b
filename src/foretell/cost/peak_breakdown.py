"""What is alive at the fullest moment of the fullest rank: its largest tensors by name.

The allocation trace of the slot's stage says what is alive at its fullest change. What other micro-batches keep is
there too, and what rests for the whole step: weights with their gradients and states.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.cost.memory import MemoryUse
from foretell.model.graph import Graph
from foretell.plan.schedule import Slot
from foretell.plan.setting import Setting
from foretell.program.activation_memory import StageTrace, WeightBuffers
from foretell.program.allocation_trace import Storage
from foretell.program.expand import layer_names
from foretell.program.expanded import ExpandedProgram, RankKind
from foretell.program.lower import lower
from foretell.program.program import Program
from foretell.program.weights import Weight

MOST = 10
"""Lines that are told."""


class Alive(msgspec.Struct, frozen=True):
    """Equal tensors that are alive: of several layers, and of several micro-batches."""

    name: str
    kind: str  # activation, gradient, gathered, or a kind of memory that rests
    count: int
    bytes: float  # of all together


class _Group(NamedTuple):
    """Tensors that are alike but for their layer and micro-batch."""

    block: int
    tensor: int
    what: str
    size: float


def alive(program: ExpandedProgram, setting: Setting, used: MemoryUse, most: int = MOST) -> tuple[Alive, ...]:
    """The largest of what is alive, largest first; what is not told is the last line."""
    outline = lower(setting)
    rank = max(range(len(used.by_stage)), key=lambda at: used.by_stage[at])
    found: list[Alive] = []
    if "activations" in used.by_kind:  # else the fullest moment lies after the passes
        found += _activations(program, outline, used, rank)
    weights = _weights(outline, rank)
    for kind, size in used.by_kind.items():
        own = weights.get(kind, [])
        if own and math.isclose(math.fsum(one.bytes for one in own), size, rel_tol=1e-9):
            found += own
        elif size and kind not in ("activations", "working"):  # a trainer's constant, or known by its kind only
            found.append(Alive(kind, kind, 1, size))
    found.sort(key=lambda one: -one.bytes)
    told, rest = found[:most], found[most:]
    if rest:
        count = sum(one.count for one in rest)
        told.append(Alive(f"{count:,} smaller ones", "others", count, math.fsum(one.bytes for one in rest)))
    return tuple(told)


def _weights(outline: Program, rank: int) -> dict[str, list[Alive]]:
    """Weights of a pipeline rank with their gradients and states, equal ones of several layers together."""
    versions = outline.schedule.weight_versions(rank, outline.ranks)
    equal: dict[tuple[int, int], list[Weight]] = defaultdict(list)
    for stage in (at for at in range(outline.partition.count) if outline.partition.rank[at] == rank):
        for weight in outline.own(stage):
            equal[weight.key[:2]].append(weight)
    found: dict[str, list[Alive]] = defaultdict(list)
    for (block, number), weights in equal.items():
        count, resting = len(weights), outline.weight_state.resting(weights[:1], versions)
        layers = {weight.key[2] for weight in weights}
        name = _layers(outline.graph, block, outline.graph.blocks[block].tensors[number].name, layers)
        parts = (("weights", resting.weights), ("gradients", resting.gradients), ("states", resting.states))
        for kind, size in parts:
            if size:
                text = name if kind == "weights" else f"{name}, {kind}"
                found[kind].append(Alive(text, kind, count, size * count))
    return found


def _activations(program: ExpandedProgram, outline: Program, used: MemoryUse, rank: int) -> list[Alive]:
    """Tensors of the passes, and what is left of their memory when all are counted.

    Where part of them waits on the host or several layers run again together, memory is known by kind only.
    """
    found = list(_tensors(program, outline, rank))
    whole = used.by_kind["activations"] + used.by_kind["working"]
    rest = whole - math.fsum(one.bytes for one in found)
    if rest < -1:
        return [Alive(kind, kind, 1, used.by_kind[kind]) for kind in ("activations", "working") if used.by_kind[kind]]
    return [*found, Alive("samples, root weights, work space", "working", 1, rest)] if rest > 1 else found


def _tensors(program: ExpandedProgram, outline: Program, rank: int) -> Iterator[Alive]:
    """What the slot at the fullest moment has alive, and what other micro-batches keep."""
    slot, others = _fullest(program, outline.setting, program.kinds[rank])
    graph = outline.graph
    count: Counter[_Group] = Counter()
    layers: dict[_Group, set[int]] = defaultdict(set)
    at_peak = _at_peak(outline, slot)
    pieces = [(at_peak.storages, 1)]
    pieces += [(_trace(outline, stage).kept(), times) for stage, times in Counter(others).items()]
    for held, times in pieces:
        for (block, tensor, repetition, what), size in held.items():
            group = _Group(block, tensor, what, size)
            count[group] += times
            layers[group].add(repetition)
    for group, times in count.items():
        if group.size:
            yield Alive(_name(graph, group, layers[group]), _kind(group), times, group.size * times)
    yield from at_peak.gathered


class _AtPeak(NamedTuple):
    """What a slot has alive when it is fullest: storages, and weights that are gathered for layers."""

    storages: dict[Storage, float]
    gathered: tuple[Alive, ...]


def _at_peak(outline: Program, slot: Slot) -> _AtPeak:
    own, runs = outline.own(slot.stage), outline.partition.runs(slot.stage)
    if not runs:
        return _AtPeak({}, ())
    sizes = outline.weight_state.care(own, outline.holders(slot.stage, own)).gathered_for(runs)
    weights = WeightBuffers(sizes, outline.weight_state.reshards)
    found = _trace(outline, slot.stage).at_peak(slot.kind == "F", weights)
    gathered = (
        Alive(f"gathered {layer_names(outline.graph, run)} weights", "gathered", times, size * times)
        for run, size, times in zip(runs, sizes, found.gathered_layers, strict=False)
        if size * times
    )
    return _AtPeak(found.storages, tuple(gathered))


def _trace(outline: Program, stage: int) -> StageTrace:
    return outline.rank_program.trace(outline.partition.runs(stage), pipelined=outline.ranks > 1)


def _fullest(program: ExpandedProgram, setting: Setting, kind: RankKind) -> tuple[Slot, list[int]]:
    """The slot at which a rank holds most, and the stages of the other micro-batches whose activations it keeps."""
    new = setting.trainer.storage.transient_gradient
    transient = new * sum(program.stages[stage].memory.trained for stage in kind.stages)
    most, found = -1.0, (kind.slots[0], list[int]())
    flying: list[tuple[int, int]] = []
    for slot in kind.slots:
        own = (slot.stage, slot.microbatch)
        others = [stage for stage, microbatch in flying if (stage, microbatch) != own]
        memory = program.stages[slot.stage].memory
        peak = memory.forward_peak if slot.kind == "F" else memory.backward_peak + transient
        held = max(peak, memory.kept) + sum(program.stages[stage].memory.kept for stage in others)
        if held > most:
            most, found = held, (slot, others)
        if slot.kind == "F":
            flying.append(own)
        elif slot.kind in ("B", "W") and own in flying:
            flying.remove(own)
    return found


# names


def _kind(group: _Group) -> str:
    return group.what if group.what in ("gradient", "gathered") else "gathered" if group.tensor < 0 else "activation"


def _name(graph: Graph, group: _Group, repetitions: set[int]) -> str:
    if group.tensor < 0:
        return f"gathered {group.what}"
    block = graph.blocks[group.block]
    tensor = block.tensors[group.tensor]
    node = next((one for one in block.nodes if group.tensor in (*one.outputs, *one.keeps)), None)
    if node is None:
        text = tensor.name or f"{tensor.role} {group.tensor}"
    else:
        made = "output" if group.tensor in node.outputs else (tensor.name or "kept")
        kind = getattr(node.operator, "function", node.kind)  # what an element-wise operator computes
        text = f"{_layers(graph, group.block, node.path, repetitions)} {kind} {made}".strip()
    return f"{text}, {group.what}" if group.what else text


def _layers(graph: Graph, at: int, path: str, repetitions: set[int]) -> str:
    """A path with all layers that it stands for: layers.0..11.attention."""
    block, parts = graph.blocks[at], path.split(".")
    if block.times > 1 and block.place < len(parts) and parts[block.place].isdigit():
        numbers = [int(parts[block.place]) + repetition * block.stride for repetition in sorted(repetitions)]
        few, many = str(numbers[0]), f"{numbers[0]}..{numbers[-1]}"
        parts[block.place] = few if len(numbers) == 1 else many
    return ".".join(parts)
