"""The model as it is evaluated: `model.eval()` under `torch.no_grad()`.

Nothing is trained and nothing is kept for a backward pass: what an operator makes beside its output (logarithms of a
loss, places of a pool's maxima) is gone with it. Dropout passes on what it gets, and batch norms take their running
averages.
"""

from __future__ import annotations

import functools

import msgspec

from foretell.caches import forgettable
from foretell.model.fold import Repetition, cut, unfold
from foretell.model.gradients import without_unkept
from foretell.model.graph import Flat, Graph, Node, Operand


def trains(graph: Graph) -> bool:
    """Whether any weight of a model is trained; else its step is a forward pass."""
    return any(tensor.trainable for block in graph.blocks for tensor in block.tensors)


@forgettable
@functools.lru_cache(maxsize=32)
def evaluated(graph: Graph) -> Graph:
    """The forward pass of a model alone."""
    flat = unfold(graph.blocks)
    writer, at, runs = _Writer(flat), 0, list[Repetition]()
    for block in (block for block in graph.blocks if block.nodes):
        start = len(writer.nodes)
        for node in flat.nodes[at : at + block.times * len(block.nodes)]:
            writer.add(node)
            at += 1
        length = (len(writer.nodes) - start) // block.times
        runs += [Repetition(start, length, block.times, block.place, block.stride)] if length else []
    found = without_unkept(Flat(tuple(writer.tensors), tuple(writer.nodes)))
    return msgspec.structs.replace(graph, blocks=cut(found, runs))


class _Writer:
    """Writes the model down once more, with its weights frozen and without what only training does."""

    def __init__(self, flat: Flat) -> None:
        self.tensors = [msgspec.structs.replace(one, trainable=False) if one.trainable else one for one in flat.tensors]
        self.nodes: list[Node] = []
        self._instead: dict[int, int] = {}  # what operators that are gone would have made, to what they would read

    def add(self, node: Node) -> None:
        inputs = tuple(Operand(one.name, self._instead.get(one.tensor, one.tensor)) for one in node.inputs)
        operator = node.operator.evaluated()
        if operator is None:
            self._pass_on(inputs[0].tensor, node.outputs[0])
            return
        names = operator.keeps([one.name for one in inputs])
        made = tuple(one for one in node.keeps if self.tensors[one].role == "kept" and self.tensors[one].name in names)
        self.nodes.append(
            msgspec.structs.replace(node, operator=operator, inputs=inputs, keeps=made, gradients=(), gradient_sums=())
        )

    def _pass_on(self, source: int, made: int) -> None:
        """What would be made is what is read: views look at that, and the tensor goes with what nobody keeps."""
        owner = self.tensors[source].storage
        for number, tensor in enumerate(self.tensors):
            if tensor.storage == made:
                self.tensors[number] = msgspec.structs.replace(tensor, storage=owner)
        self._instead[made] = source
        self.tensors[made] = msgspec.structs.replace(self.tensors[made], role="kept", storage=made)
