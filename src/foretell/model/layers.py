"""The layers of a model, and the stages that a pipeline cuts them into.

A layer is one item of a stack that repeats (`layers.3`, `features.7`): trainers gather, recompute and
cut by these. What lies before the first belongs to the first stage, what lies after the last to the last.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.model import fold as fold_runs
from foretell.model.fold import cut, fold, unfold
from foretell.model.graph import Block, Graph
from foretell.model.resize import skeleton


class LayerPiece(NamedTuple):
    """Operators of one repetition of a block that belong to one layer (or to none)."""

    block: int
    repetition: int
    start: int
    stop: int
    layer: str


class EqualLayers(NamedTuple):
    """Equal pieces in a row: `times` repetitions from `first`."""

    block: int
    start: int
    stop: int
    first: int
    times: int
    layer: str  # of the first; empty for operators outside the layers
    spared: bool = False  # they save all, whatever else runs again


def pieces(graph: Graph) -> tuple[LayerPiece, ...]:
    """The model in running order, cut where one layer ends and another begins."""
    return _pieces(skeleton(graph))


@forgettable
@functools.lru_cache(maxsize=64)
def _pieces(graph: Graph) -> tuple[LayerPiece, ...]:
    stacks = _stacks(graph)
    found: list[LayerPiece] = []
    for at, block in enumerate(graph.blocks):
        for repetition in range(block.times if block.nodes else 0):
            names = [_layer(block, node.path, repetition, stacks) for node in block.nodes]
            start = 0
            for name, run in groupby(names):
                stop = start + len(list(run))
                found.append(LayerPiece(at, repetition, start, stop, name))
                start = stop
    return tuple(_joined(found))


@forgettable
@functools.lru_cache(maxsize=64)
def by_layers(graph: Graph) -> Graph:
    """The same model cut into blocks so that each layer is a block, or a repetition of one."""
    runs: list[fold_runs.Repetition] = []
    start = 0
    for (at, _), found in groupby(pieces(graph), key=lambda piece: (piece.block, piece.repetition)):
        block, own = graph.blocks[at], list(found)
        if block.times > 1 and len(own) == 1:
            if own[0].repetition == 0:
                runs.append(fold_runs.Repetition(start, len(block.nodes), block.times, block.place, block.stride))
            start += len(block.nodes)
            continue
        for piece in own:
            runs.append(fold_runs.Repetition(start, piece.stop - piece.start, 1))
            start += piece.stop - piece.start
    return msgspec.structs.replace(graph, blocks=cut(unfold(graph.blocks), runs))


def layers(graph: Graph) -> tuple[str, ...]:
    """The names of the layers in running order; operators that do matrix work where no stack repeats."""
    return tuple(dict.fromkeys(piece.layer for piece in pieces(graph) if piece.layer))


def runs(found: tuple[LayerPiece, ...]) -> tuple[EqualLayers, ...]:
    """Pieces with equal ones in a row put together."""
    result: list[EqualLayers] = []
    for piece in found:
        last = result[-1] if result else None
        same = last and last[:3] == (piece.block, piece.start, piece.stop)
        if last and same and piece.repetition == last.first + last.times and piece.layer:
            result[-1] = last._replace(times=last.times + 1)
        else:
            result.append(EqualLayers(piece.block, piece.start, piece.stop, piece.repetition, 1, piece.layer))
    return tuple(result)


def _stacks(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Paths of numbered items (a number in them is any number): those that repeat, the outermost of nested ones.

    A path that lies in none of these has the items of its outermost number, if it has one.
    """
    blocks = graph.blocks if any(block.times > 1 for block in graph.blocks) else fold(unfold(graph.blocks))
    paths = (block.nodes[0].path.split(".")[: block.place] for block in blocks if block.times > 1)
    found = {_pattern(path) for path in paths}
    found = {s for s in found if not any(s != t and s[: len(t)] == t for t in found)}
    for _, node in graph.nodes():
        parts = node.path.split(".")
        first = next((at for at, part in enumerate(parts) if part.isdigit()), None)
        if first is not None and not any(_pattern(parts[: len(s)]) == s for s in found):
            found.add(_pattern(parts[:first]))
    # a path in two of them is of the longer, in whatever order a set has them
    return tuple(sorted(found, key=lambda stack: (-len(stack), stack)))


def _pattern(path: list[str]) -> tuple[str, ...]:
    return tuple("*" if part.isdigit() else part for part in path)


def _layer(block: Block, path: str, repetition: int, stacks: tuple[tuple[str, ...], ...]) -> str:
    parts = path.split(".")
    if block.times > 1:
        parts[block.place] = str(int(parts[block.place]) + repetition * block.stride)
    for stack in stacks:
        at = len(stack)
        if _pattern(parts[:at]) == stack and at < len(parts) and parts[at].isdigit():
            return ".".join(parts[: at + 1])
    return "" if stacks else path


def _joined(found: list[LayerPiece]) -> Iterator[LayerPiece]:
    """Give operators between two pieces of one layer (a shortcut's sum) to that layer."""
    for at, piece in enumerate(found):
        before = found[at - 1].layer if at else ""
        after = found[at + 1].layer if at + 1 < len(found) else ""
        yield piece._replace(layer=before) if not piece.layer and before and before == after else piece
