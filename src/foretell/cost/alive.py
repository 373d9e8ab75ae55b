"""What is alive at the fullest moment of the fullest rank: its largest tensors by name.

The memory events of the program are played again, up to the event at which the slot is fullest. What other
micro-batches keep is there too, and what rests for the whole step: weights with their gradients and states.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from foretell.cost.memory import MemoryUse
from foretell.model.graph import Graph
from foretell.plan.schedule import Slot
from foretell.plan.setting import Setting
from foretell.program.action import Allocate, Free
from foretell.program.body import Body
from foretell.program.outline import Outline
from foretell.program.program import Program, RankKind, Stage
from foretell.program.replay import Storage, Turn, replay, storage
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


def alive(program: Program, setting: Setting, used: MemoryUse, most: int = MOST) -> tuple[Alive, ...]:
    """The largest of what is alive, largest first; what is not told is the last line."""
    outline = Outline(setting)
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


def _weights(outline: Outline, rank: int) -> dict[str, list[Alive]]:
    """Weights of a pipeline rank with their gradients and states, equal ones of several layers together."""
    versions = outline.schedule.weight_versions(rank, outline.ranks)
    equal: dict[tuple[int, int], list[Weight]] = defaultdict(list)
    for stage in (at for at in range(outline.cutting.count) if outline.cutting.rank[at] == rank):
        for weight in outline.own(stage):
            equal[weight.key[:2]].append(weight)
    found: dict[str, list[Alive]] = defaultdict(list)
    for (block, number), weights in equal.items():
        count, resting = len(weights), outline.upkeep.resting(weights[:1], versions)
        layers = {weight.key[2] for weight in weights}
        name = _layers(outline.graph, block, outline.graph.blocks[block].tensors[number].name, layers)
        parts = (("weights", resting.weights), ("gradients", resting.gradients), ("states", resting.states))
        for kind, size in parts:
            if size:
                text = name if kind == "weights" else f"{name}, {kind}"
                found[kind].append(Alive(text, kind, count, size * count))
    return found


def _activations(program: Program, outline: Outline, used: MemoryUse, rank: int) -> list[Alive]:
    """Tensors of the passes, and what is left of their memory when all are counted.

    Where part of them waits on the host or several layers run again together, memory is known by kind only.
    """
    found = list(_tensors(program, outline, rank))
    whole = used.by_kind["activations"] + used.by_kind["working"]
    rest = whole - math.fsum(one.bytes for one in found)
    if rest < -1:
        return [Alive(kind, kind, 1, used.by_kind[kind]) for kind in ("activations", "working") if used.by_kind[kind]]
    return [*found, Alive("samples, root weights, work space", "working", 1, rest)] if rest > 1 else found


def _tensors(program: Program, outline: Outline, rank: int) -> Iterator[Alive]:
    graph, kind = outline.graph, program.kinds[rank]
    slot, others = _fullest(program, outline.setting, kind)
    count: Counter[_Group] = Counter()
    layers: dict[_Group, set[int]] = defaultdict(set)
    plays = {stage: _Play(graph, program.stages[stage], len(program.kinds) > 1) for stage in kind.stages}
    pieces = [(plays[slot.stage].at_peak(slot.kind), 1)]
    pieces += [(plays[stage].kept, times) for stage, times in Counter(others).items()]
    for held, times in pieces:
        for (block, tensor, repetition, what), size in held.items():
            group = _Group(block, tensor, what, size)
            count[group] += times
            layers[group].add(repetition)
    for group, times in count.items():
        if group.size:
            yield Alive(_name(graph, group, layers[group]), _kind(group), times, group.size * times)


def _fullest(program: Program, setting: Setting, kind: RankKind) -> tuple[Slot, list[int]]:
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


# the events of one stage


class _Play:
    """One micro-batch on one stage: what is alive at the peak of each pass, and between them."""

    def __init__(self, graph: Graph, stage: Stage, pipelined: bool) -> None:
        self.graph = graph
        self.turns = [Turn(layer.run, layer.forward, layer.backward) for layer in stage.layers]
        found = replay(graph, self.turns, pipelined=True) if pipelined else None
        self.come = found.missing if found else {}
        self.go = found.left if found else {}

    def at_peak(self, slot: str) -> dict[Storage, float]:
        if slot == "F":
            return self._forward[0]
        come_back = {name: size for name, size in self.come.items() if name[3] == "gradient"}
        return self._passed({**self.kept, **come_back}, self._events("backward"))[0]

    @property
    def kept(self) -> dict[Storage, float]:
        """What waits for the backward pass."""
        left = self._forward[1]
        return {name: size for name, size in left.items() if name[3] == "gradient" or name not in self.go}

    @functools.cached_property
    def _forward(self) -> tuple[dict[Storage, float], dict[Storage, float]]:
        come = {name: size for name, size in self.come.items() if name[3] != "gradient"}
        return self._passed(come, self._events("forward"))

    def _events(self, phase: str) -> list[tuple[Storage, float]]:
        """Begins with their bytes and ends with less than nothing, in running order."""
        found: list[tuple[Storage, float]] = []
        for turn in self.turns if phase == "forward" else reversed(self.turns):
            repetitions = range(turn.run.first, turn.run.first + turn.run.times)
            body = turn.forward if phase == "forward" else turn.backward
            for repetition in repetitions if phase == "forward" else reversed(repetitions):
                found += self._body(turn.run.block, repetition, body)
        return found

    def _body(self, at: int, repetition: int, body: Body) -> Iterator[tuple[Storage, float]]:
        last = self.graph.blocks[at].times - 1
        now = {"every": True, "first": repetition == 0, "last": repetition == last, "rest": repetition > 0}
        for action in body.actions:
            if isinstance(action, Allocate):
                yield storage(self.graph, at, repetition, action.name), float(action.bytes)
            elif isinstance(action, Free) and now[action.when]:
                yield storage(self.graph, at, repetition, action.name), -1.0

    @staticmethod
    def _passed(
        start: Mapping[Storage, float], events: Iterable[tuple[Storage, float]]
    ) -> tuple[dict[Storage, float], dict[Storage, float]]:
        """What is alive at the fullest event, and at the end."""
        events = list(events)
        held, peak, when = math.fsum(start.values()), math.fsum(start.values()), 0
        there = dict(start)
        for at, (name, size) in enumerate(events, 1):
            held += _played(there, name, size)
            if held > peak:
                peak, when = held, at
        fullest = dict(start)
        for name, size in events[:when]:
            _played(fullest, name, size)
        return fullest, there


def _played(there: dict[Storage, float], name: Storage, size: float) -> float:
    """One event; by how much there is more."""
    if size < 0:
        return -there.pop(name, 0.0)
    if name in there:
        return 0.0
    there[name] = size
    return size


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
