"""Checks of a program: nothing lost, nothing waited for in vain, nothing left in memory.

A program that was lowered passes; what fails here is a bug in foretell, never in a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foretell.model.graph import Graph
from foretell.model.operator import PARTS
from foretell.model.operators.matmul import IN_PIECES
from foretell.plan.axis_names import AxisName
from foretell.plan.schedule import Slot
from foretell.plan.text import parse
from foretell.plan.trained import as_trained_by
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Allocate, Free, Update
from foretell.program.activation_memory import LayerMemory, stage_trace
from foretell.program.body import Body
from foretell.program.boundary import crossing
from foretell.program.expanded import ExpandedProgram, Stage
from foretell.program.lower import as_lowered
from foretell.program.mesh import mesh
from foretell.units import product

ROUNDING = 1e-9

PADDED = 2.0
"""Padding and uneven shares can at most double a dim of at least as many elements as ranks."""


def verify(program: ExpandedProgram, graph: Graph, runs: Trainer | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a program of this model; nothing, if all is well. `runs`: one of a file's own."""
    return tuple(_problems(program, graph, runs or trainer(program.trainer)))


def _problems(program: ExpandedProgram, graph: Graph, runs: Trainer) -> Iterator[str]:
    plan = parse(program.plan)
    trained = as_trained_by(plan, graph)
    yield from _work(program, trained)
    yield from _updates(program, trained)
    yield from _groups(program)
    yield from _pairs(program)
    yield from _progress(program)
    lowered = as_lowered(trained, mesh(plan), plan, runs)
    for stage in program.stages:
        yield from _memory(stage, lowered, pipelined=len(program.kinds) > 1)


def _work(program: ExpandedProgram, graph: Graph) -> Iterator[str]:
    """All ranks together do what the model needs, for each kind of operator and part: not less, and not more than
    if every rank beside the pipeline did all of it (some operators run whole on several ranks)."""
    needed: Counter[tuple[str, str]] = Counter()
    for block, node in graph.nodes():
        widths = graph.widths(block, node)
        for part in PARTS:
            needed[node.operator.priced_as, part.split("_")[-1]] += node.cost(part, widths).matrix * block.times
    done: Counter[tuple[str, str]] = Counter()
    for kind in program.kinds:
        for action, times in program.computations(kind):
            if not action.again:
                kernel = "matmul" if action.operator == IN_PIECES else action.operator
                done[kernel, action.part.split("_")[-1]] += action.cost.matrix * times * kind.ranks
    for key, flops in needed.items():
        needs = flops * program.microbatches
        most = needs * (
            1 if not program.axes else PADDED * product(a.ranks for a in program.axes if a.name != AxisName.PP)
        )
        if not needs * (1 - ROUNDING) <= done[key] <= most * (1 + ROUNDING):
            yield f"{key[0]} {key[1]}: {done[key]:.6g} flops on all ranks, {needs:.6g} needed"


def _updates(program: ExpandedProgram, graph: Graph) -> Iterator[str]:
    """Every trained weight is updated by somebody, and every axis that shares work talks."""
    trained = sum(block.times * t.elements() for block in graph.blocks for t in block.tensors if t.trainable)
    updated = sum(
        action.parameters * kind.ranks
        for kind in program.kinds
        for body, _, _ in program.walk(kind)
        for action in body.actions
        if isinstance(action, Update)
    )
    servers = max((axis.ranks for axis in program.axes if axis.name.startswith("ps")), default=1)
    if updated * servers < trained:
        yield f"{updated:,} weights are updated on all ranks, {trained:,} are trained"
    used = {name for kind in program.kinds for message, _ in program.communications(kind) for name in message.axes}
    for axis in program.axes:
        if axis.divides and axis.name not in used and trained:
            yield f"nothing travels along {axis.name}, though {axis.ranks} ranks share the work"


def _groups(program: ExpandedProgram) -> Iterator[str]:
    """Every message is along axes of the mesh, among as many ranks as these have, and carries something."""
    sizes = {axis.name: axis.ranks for axis in program.axes}
    for kind in program.kinds:
        for message, _ in program.communications(kind):
            unknown = [name for name in message.axes if name not in sizes]
            if unknown or message.payload <= 0 or message.messages < 1:
                yield f"{message.kind} of {message.path} along {message.axes}: {message.payload} bytes"
            elif AxisName.PP not in message.axes and message.ranks != product(sizes[name] for name in message.axes):
                yield f"{message.kind} of {message.path} along {message.axes} among {message.ranks} ranks"


def _pairs(program: ExpandedProgram) -> Iterator[str]:
    """What one stage sends is what the next receives, in both directions."""
    for at, stage in enumerate(program.stages):
        if stage.after >= 0:
            other = program.stages[stage.after]
            yield from _pair(at, stage.leave, other.enter, "forward")
            yield from _pair(at, other.leave_back, stage.enter_back, "backward")


def _pair(at: int, sender: Body, receiver: Body, way: str) -> Iterator[str]:
    sent = _ends(sender, "send")
    received = _ends(receiver, "receive")
    if sent != received:
        yield f"{way} between stage {at} and the next: {dict(sent)} sent, {dict(received)} received"


def _ends(body: Body, kind: str) -> Counter[tuple[str, str, float]]:
    found = (message for message in body.communications() if message.kind == kind)
    return Counter((message.what, message.path, message.payload) for message in found)


def _progress(program: ExpandedProgram) -> Iterator[str]:
    """Ranks that work through their slots in order all come to the end."""
    places = {kind.place: 0 for kind in program.kinds}
    kinds = {kind.place: kind for kind in program.kinds}
    done: set[tuple[str, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for place, kind in kinds.items():
            while places[place] < len(kind.slots) and _ready(program, kind.slots[places[place]], done):
                slot = kind.slots[places[place]]
                done.add((slot.kind, slot.stage, slot.microbatch))
                places[place] += 1
                moved = True
    for place, at in places.items():
        if at < len(kinds[place].slots):
            yield f"rank {place} of the pipeline waits for ever at {kinds[place].slots[at]}"


def _ready(program: ExpandedProgram, slot: Slot, done: set[tuple[str, int, int]]) -> bool:
    stage = program.stages[slot.stage]
    if slot.kind == "F":
        return stage.before < 0 or ("F", stage.before, slot.microbatch) in done
    if slot.kind == "W":
        return ("I", slot.stage, slot.microbatch) in done
    after = stage.after < 0 or any((kind, stage.after, slot.microbatch) in done for kind in ("B", "I"))
    return after and ("F", slot.stage, slot.microbatch) in done


def _memory(stage: Stage, graph: Graph, pipelined: bool) -> Iterator[str]:
    """Every allocation of a micro-batch is freed once, here or by the stage that it is sent to."""
    layers = [(layer.run, LayerMemory.of(layer.forward.actions, layer.backward.actions)) for layer in stage.layers]
    trace = stage_trace(graph, layers, pipelined=pipelined).trace
    bodies = (stage.enter, stage.leave, stage.enter_back, stage.leave_back)
    events = (action for body in bodies for action in body.actions if isinstance(action, Allocate | Free))
    crossed = {event.name for event in events} if pipelined else set[str]()
    for storage in trace.twice:
        yield f"stage {stage.part}: {crossing(storage)} is allocated twice"
    for storage in trace.missing:
        if crossing(storage) not in crossed:
            yield f"stage {stage.part}: {crossing(storage)} is freed, but nobody allocated it"
    for storage in trace.left:
        if crossing(storage) not in crossed:
            yield f"stage {stage.part}: {crossing(storage)} is never freed"
