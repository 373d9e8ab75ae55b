"""What crosses from one stage of the pipeline to the next: activations, their gradients, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.model.graph import Block, Graph
from foretell.model.layers import Piece
from foretell.program.action import Action, Allocate, Communicate, Free
from foretell.program.homes import storage_owner
from foretell.program.layout import Layout
from foretell.program.replay import Replay, Storage


@dataclass(frozen=True)
class Boundary:
    """The cuts of a model into parts."""

    layout: Layout
    parts: tuple[tuple[Piece, ...], ...]

    @property
    def graph(self) -> Graph:
        return self.layout.graph

    def before(self, part: int) -> Iterator[tuple[str, int]]:
        """Activations that a part and those after it need from parts before it: name and bytes."""
        earlier = {(piece.block, piece.repetition) for before in self.parts[:part] for piece in before}
        later = [piece for after in self.parts[part:] for piece in after]
        here = {(piece.block, piece.repetition) for piece in later}
        found: dict[tuple[int, int, int], int] = {}
        for piece in later:
            block = self.graph.blocks[piece.block]
            for node in block.nodes[piece.start : piece.stop]:
                for operand in node.inputs:
                    made = _made(self.graph, piece, operand.tensor)
                    if made and self._crosses(made, piece, earlier, here):
                        found[made] = self.layout.bytes(piece.block, operand.tensor)
        for (at, number, _), size in found.items():
            yield _made_name(self.graph.blocks[at], number), size

    def _crosses(
        self, made: tuple[int, int, int], piece: Piece, earlier: set[tuple[int, int]], here: set[tuple[int, int]]
    ) -> bool:
        at, number, repetition = made
        if (at, repetition) not in earlier or ((at, repetition) in here and not self._cut(made, piece)):
            return False
        return any(node.gradients and number in node.outputs for node in self.graph.blocks[at].nodes)

    def _cut(self, made: tuple[int, int, int], piece: Piece) -> bool:
        """Whether a block that the boundary cuts in two made the tensor before the cut."""
        at, number, _ = made
        maker = next(i for i, node in enumerate(self.graph.blocks[at].nodes) if number in node.outputs)
        return maker < piece.start and at == piece.block


class Border:
    """Memory of tensors that cross from one stage to another: who frees them is not who made them."""

    def __init__(self, found: Replay | None = None) -> None:
        missing = found.missing if found else {}
        left = found.left if found else {}
        self.arrive = [Allocate(crossing(s), size, "activation") for s, size in missing.items() if s[3] != "gradient"]
        self.come_back = [Allocate(crossing(s), size, "gradient") for s, size in missing.items() if s[3] == "gradient"]
        self.sent = [Free(crossing(s), size) for s, size in left.items() if s[3] != "gradient"]
        self.given_back = [Free(crossing(s), size) for s, size in left.items() if s[3] == "gradient"]


def crossing(storage: Storage) -> str:
    """The name of a tensor that another stage made or will use."""
    at, number, repetition, what = storage
    return f"{at}.{number} of repetition {repetition}{f' {what}' if what else ''}"


def _made(graph: Graph, piece: Piece, number: int) -> tuple[int, int, int] | None:
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


def _made_name(block: Block, number: int) -> str:
    return next(node.path for node in block.nodes if number in node.outputs)


def messages(kind: str, tensors: list[tuple[str, int]], what: str) -> list[Action]:
    return [Communicate(kind, ("pp",), 2, size, what, name) for name, size in tensors]
