"""What one rank does in a step, added up for a page: operators, communications, memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from foretell.program.action import Allocate, Compute
from foretell.program.body import Body
from foretell.program.expanded import ExpandedProgram, Layer, RankKind, Stage, belongs
from foretell.timeline.unroll import in_flight


class OperatorRow(msgspec.Struct, frozen=True):
    """Operators that are alike, of one micro-batch."""

    path: str  # a number that differs between them is *
    operator: str
    loops: dict[str, int]  # local sizes
    times: int
    forward: float  # matrix flops of one of them
    backward: float  # both gradients, and what runs again


class CommunicationRow(msgspec.Struct, frozen=True):
    """Communications of a step that are alike."""

    when: str  # forward, backward, step
    kind: str
    what: str
    axes: tuple[str, ...]
    ranks: int
    count: float
    payload: float  # bytes that each contributes, on average
    sent: float
    equal: bool  # whether each has the same payload


class AllocationRow(msgspec.Struct, frozen=True):
    """Allocations of one micro-batch that are alike."""

    name: str
    kind: str
    bytes: float
    times: int


# operators


def operators(program: ExpandedProgram, kind: RankKind) -> list[OperatorRow]:
    """The operators of one micro-batch on a rank of this kind, those with the most work first."""
    found: dict[_AlikeRanks, list[OperatorRow]] = {}
    for stage in kind.stages:
        for layer in program.stages[stage].layers:
            for row in _operators(layer):
                key = _AlikeRanks(_starred(row.path), row.operator, tuple(row.loops.items()))
                found.setdefault(key, []).append(row)
    rows = [_joined(key, parts) for key, parts in found.items()]
    return sorted(rows, key=lambda row: -(row.forward + row.backward) * row.times)


class _AlikeRanks(NamedTuple):
    path: str
    operator: str
    loops: tuple[tuple[str, int], ...]


def _joined(key: _AlikeRanks, rows: list[OperatorRow]) -> OperatorRow:
    times = sum(row.times for row in rows)
    forward = sum(row.times * row.forward for row in rows) / times
    backward = sum(row.times * row.backward for row in rows) / times
    paths = {row.path for row in rows}
    path = key.path if len(paths) > 1 else rows[0].path
    return OperatorRow(path, key.operator, dict(key.loops), times, forward, backward)


def _operators(layer: Layer) -> Iterator[OperatorRow]:
    """The operators of a layer, with its number in their paths."""
    seen: dict[_AlikeRanks, list[float]] = {}
    for body, at in ((layer.forward, 1), (layer.backward, 2)):
        for action in body.computations():
            key = _AlikeRanks(placed(action.path, layer), action.operator, tuple(action.loops.items()))
            entry = seen.setdefault(key, [0, 0, 0])
            entry[0] += at == 1
            entry[at] += action.cost.matrix
    for key, (count, forward, backward) in seen.items():
        many = max(1, int(count))
        yield OperatorRow(key.path, key.operator, dict(key.loops), many * layer.times, forward / many, backward / many)


_NUMBERED = re.compile(r"(.*?)(\d+)(\.\.\d+)?")


def placed(path: str, layer: Layer) -> str:
    """A path as its layer calls it: bodies are written for the first of all equal layers."""
    name = _NUMBERED.fullmatch(layer.name)
    if name is None:
        return path
    stem, number, more = name[1], name[2], name[3]
    return re.sub(rf"^{re.escape(stem)}\d+(?=\.|$)", f"{stem}{'*' if more else number}", path)


def _starred(path: str) -> str:
    """The path with the first number in it as *."""
    return re.sub(r"(^|\.)(\d+|\*)(?=\.|$)", r"\1*", path, count=1)


# communications


def communications(program: ExpandedProgram, kind: RankKind) -> list[CommunicationRow]:
    """The communications of a step of a rank of this kind, in the order in which they first occur."""
    order = {"forward": 0, "backward": 1, "step": 2}
    found: dict[tuple[str, str, str, tuple[str, ...], int], list[tuple[float, float, float]]] = {}
    for body, times, slot in program.walk(kind):
        for message in body.communications():
            if belongs(message, slot):
                key = (body.phase, message.kind, message.what, message.axes, message.ranks)
                found.setdefault(key, []).append((times / message.every, message.payload, message.sent * times))
    rows = [
        CommunicationRow(
            *key,
            count=sum(count for count, _, _ in parts),
            payload=sum(count * payload for count, payload, _ in parts) / sum(count for count, _, _ in parts),
            sent=sum(sent for _, _, sent in parts),
            equal=len({payload for _, payload, _ in parts}) == 1,
        )
        for key, parts in found.items()
    ]
    return sorted(rows, key=lambda row: order[row.when])


# memory


class Waiting(NamedTuple):
    """What waits for its backward pass on one rank, at most."""

    passes: int  # micro-batches, counted once for each stage that the rank holds
    bytes: float


def waiting(program: ExpandedProgram, kind: RankKind) -> Waiting:
    """The most that is between a forward and a backward pass at once, by the order of the slots."""
    kept = [program.stages[stage].memory.kept for stage in kind.stages]
    moments = in_flight(kind.slots, kind.stages)
    sizes = (sum(count * size for count, size in zip(moment, kept, strict=True)) for moment in moments)
    return Waiting(max(map(sum, moments)), max(sizes))


def allocations(program: ExpandedProgram, kind: RankKind) -> list[AllocationRow]:
    """Distinct allocations of a micro-batch, the largest first, named by the operator that they are for."""
    found: dict[tuple[str, str, float], int] = {}
    for stage in kind.stages:
        for body, times, layer in _bodies(program.stages[stage]):
            for action, path in _named(body.actions, body.name):
                shown = _starred(placed(path, layer)) if layer and layer.times > 1 else path
                key = (_subject(action, shown), action.kind, action.bytes)
                found[key] = found.get(key, 0) + times
    rows = [AllocationRow(name, what, size, times) for (name, what, size), times in found.items()]
    return sorted(rows, key=lambda row: -row.bytes)


def _bodies(stage: Stage) -> Iterator[tuple[Body, int, Layer | None]]:
    yield stage.enter, 1, None
    for layer in stage.layers:
        yield layer.forward, layer.times, layer
        yield layer.backward, layer.times, layer


def _named(actions: Iterable[object], name: str) -> Iterator[tuple[Allocate, str]]:
    """Each allocation with the path of the operator that comes after it."""
    waiting: list[Allocate] = []
    for action in actions:
        if isinstance(action, Allocate):
            waiting.append(action)
        elif isinstance(action, Compute):
            yield from ((one, action.path) for one in waiting)
            waiting = []
    yield from ((one, name) for one in waiting)


def _subject(action: Allocate, path: str) -> str:
    if action.name.endswith("weights"):
        return action.name
    path = path or "(root)"
    return {"gathered": f"input of {path}", "gradient": f"gradient at {path}"}.get(action.kind, path)
