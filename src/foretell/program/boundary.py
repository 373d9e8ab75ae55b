"""What crosses from one stage of the pipeline to the next: activations, their gradients, and their memory."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.model.graph import Graph
from foretell.model.layers import LayerPiece
from foretell.plan.axis_names import AxisName
from foretell.program.action import Action, Allocate, Communicate, Free
from foretell.program.aliases import alias_source, storage_owner
from foretell.program.allocation_trace import Storage
from foretell.program.sharding.layout import Layout
from foretell.units import FLOATING


class CutTensor(NamedTuple):
    """A tensor that crosses between two parts: who made it, and its bytes."""

    path: str
    bytes: int
    made: tuple[int, int, int]  # block, tensor and repetition
    trained: bool  # whether a gradient comes back


class BoundaryCrossing(NamedTuple):
    """The same before it has a size: who made it, and how a block that reads it calls it."""

    path: str
    made: tuple[int, int, int]
    read: tuple[int, int]  # block and tensor
    trained: bool


def crossings(graph: Graph, parts: tuple[tuple[LayerPiece, ...], ...]) -> tuple[tuple[BoundaryCrossing, ...], ...]:
    """For each part the activations that it or a later one needs from those before it.

    Only what comes from weights is sent: masks and tables are made again where they are needed.
    """
    differentiable = [{n for node in block.nodes if node.gradients for n in node.outputs} for block in graph.blocks]
    learnt = _learnt(graph)
    place = _places(parts)
    found: list[dict[tuple[int, int, int], tuple[int, int]]] = [{} for _ in parts]
    for part, pieces in enumerate(parts):
        for piece in pieces:
            for number in _reads(graph, piece):
                made = _made(graph, piece, number)
                if made is None or made[:2] not in learnt:
                    continue
                for crossed in range(place[made[0], made[2]](_maker(graph, made)) + 1, part + 1):
                    found[crossed][made] = piece.block, number
    return tuple(
        tuple(
            BoundaryCrossing(_maker_path(graph, made), made, read, made[1] in differentiable[made[0]])
            for made, read in crossing.items()
        )
        for crossing in found
    )


def _learnt(graph: Graph) -> set[tuple[int, int]]:
    """The outputs (block, tensor) that depend on weights: those with a gradient, and numbers from frozen layers."""
    found = {
        (at, number)
        for at, block in enumerate(graph.blocks)
        for number, tensor in enumerate(block.tensors)
        if tensor.role == "parameter"
    }
    for at, block in enumerate(graph.blocks):
        for node in block.nodes:
            read = any(alias_source(graph, at, operand.tensor) in found for operand in node.inputs)
            found.update((at, n) for n in node.outputs if read and block.tensors[n].dtype in FLOATING)
    return found


def cuts(layout: Layout, found: tuple[tuple[BoundaryCrossing, ...], ...]) -> tuple[tuple[CutTensor, ...], ...]:
    """The same with the bytes of one rank."""
    sizes: dict[tuple[int, int], int] = {}
    for crossing in (one for part in found for one in part):
        if crossing.read not in sizes:
            sizes[crossing.read] = layout.wire_bytes(*crossing.read)
    return tuple(tuple(CutTensor(one.path, sizes[one.read], one.made, one.trained) for one in part) for part in found)


def _places(parts: tuple[tuple[LayerPiece, ...], ...]) -> dict[tuple[int, int], Callable[[int], int]]:
    """For each repetition of a block, which part has a node of it."""
    pieces: dict[tuple[int, int], list[tuple[LayerPiece, int]]] = defaultdict(list)
    for part, found in enumerate(parts):
        for piece in found:
            pieces[piece.block, piece.repetition].append((piece, part))

    def finder(own: list[tuple[LayerPiece, int]]) -> Callable[[int], int]:
        return lambda node: next(part for piece, part in own if piece.start <= node < piece.stop)

    return {key: finder(own) for key, own in pieces.items()}


def _reads(graph: Graph, piece: LayerPiece) -> Iterator[int]:
    """Tensors that a piece reads and may not have made: imports, and all if it is not the whole of its block."""
    block = graph.blocks[piece.block]
    whole = piece.start == 0 and piece.stop == len(block.nodes)
    numbers = {operand.tensor for node in block.nodes[piece.start : piece.stop] for operand in node.inputs}
    return (number for number in sorted(numbers) if not whole or number >= len(block.tensors))


@forgettable
@functools.lru_cache(maxsize=4096)
def _maker(graph: Graph, made: tuple[int, int, int]) -> int:
    at, number, _ = made
    return next(index for index, node in enumerate(graph.blocks[at].nodes) if number in node.outputs)


def _maker_path(graph: Graph, made: tuple[int, int, int]) -> str:
    return graph.blocks[made[0]].nodes[_maker(graph, made)].path


class Border:
    """Memory of tensors that cross from one stage to another: who frees them is not who made them.

    Only what is sent or received is accounted for: anything else that is left over is a fault.
    """

    def __init__(
        self, graph: Graph, received: Sequence[CutTensor], sent: Sequence[CutTensor], missing: Storages, left: Storages
    ) -> None:
        """`missing` is freed by the stage but not allocated there, `left` the other way round; with their bytes."""
        came = {graph.home(at, number, repetition) for at, number, repetition in (cut.made for cut in received)}
        went = {graph.home(at, number, repetition) for at, number, repetition in (cut.made for cut in sent)}
        self.arrive = [Allocate(crossing(s), size, "activation") for s, size in _of(graph, missing, came, "")]
        self.sent = [Free(crossing(s), size) for s, size in _of(graph, left, went, "")]
        back = _of(graph, missing, went, "gradient")
        self.come_back = [Allocate(crossing(s), size, "gradient") for s, size in back]
        self.given_back = [Free(crossing(s), size) for s, size in _of(graph, left, came, "gradient")]


Storages: TypeAlias = Mapping[Storage, float]


def _of(
    graph: Graph, storages: Storages, homes: set[tuple[int, int, int]], what: str
) -> Iterator[tuple[Storage, float]]:
    """Those of the storages that belong to tensors which cross."""
    for storage, size in storages.items():
        at, number, repetition, kind = storage
        if kind == what and number >= 0 and graph.home(at, number, repetition) in homes:
            yield storage, size


def crossing(storage: Storage) -> str:
    """The name of a tensor that another stage made or will use."""
    at, number, repetition, what = storage
    return f"{at}.{number} of repetition {repetition}{f' {what}' if what else ''}"


def _made(graph: Graph, piece: LayerPiece, number: int) -> tuple[int, int, int] | None:
    """(block, tensor, repetition) that made an operand; None if no operator did."""
    at, repetition = piece.block, piece.repetition
    while number >= len(graph.blocks[at].tensors):
        entry = graph.blocks[at].imports[number - len(graph.blocks[at].tensors)]
        if entry.carried >= 0 and repetition > 0:
            number, repetition = entry.carried, repetition - 1
        else:
            at, number, repetition = entry.block, entry.tensor, entry.repetition
    home = storage_owner(graph, at, number)
    role = graph.blocks[home[0]].tensors[home[1]].role
    return (at, number, repetition) if role in ("activation", "kept") else None


def messages(kind: str, tensors: Sequence[CutTensor], what: str) -> list[Action]:
    crossing = (cut for cut in tensors if what != "gradients" or cut.trained)
    return [Communicate(kind, (AxisName.PP,), 2, cut.bytes, what, cut.path) for cut in crossing]
