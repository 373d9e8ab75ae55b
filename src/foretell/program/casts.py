"""Casts of activations: what an operator costs besides itself that reads them in another type.

Under autocast products read 16 bits, norms of tokens, softmax and losses 32, each through a copy that a kernel makes
for it alone; gradients go back the same way (PyTorch 2.13, aten/src/ATen/autocast_mode.h: the copies of weights are
kept for others, those of activations are not).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

from foretell.caches import forgettable
from foretell.model.autocast import FULL, HALF, Widths, cast_operands, widths_under_autocast
from foretell.model.graph import Graph, Node
from foretell.model.operator import OperatorPart
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.sharding.layout import Layout

PLAIN_PASSES: Final = 10
"""Passes over the hidden tensor of a plain layer, forward; backward it has 16, the 1.6 times that trainers have too."""


def by_operators(trainer: Trainer) -> bool:
    """Whether a trainer runs the model's operators one by one; others have all bytes of a layer in their constants."""
    passes = dict(trainer.fusion.hidden_passes)
    return trainer.execution == "eager" and passes == {"any": PLAIN_PASSES} and not trainer.attention.layer_passes


@forgettable
@functools.lru_cache(maxsize=256)
def operand_widths(graph: Graph, casts: bool) -> Widths:
    """Bytes per element of each operand; the same for all layouts of a model."""
    if casts:
        return widths_under_autocast(graph)
    return tuple(tuple(graph.widths(block, node) for node in block.nodes) for block in graph.blocks)


def casting(layout: Layout, at: int, index: int, node: Node, part: str) -> Iterator[Compute]:
    """The copies of operands before a part of an operator, or of their gradients after it: as many bytes either way."""
    if not layout.casts or part == "weight_gradient":
        return
    for number in cast_operands(layout.graph).get((at, index), ()):
        if part == "forward" or layout.graph.tensor(layout.graph.blocks[at], number).role == "activation":
            items = layout.elements_of(at, number)
            moved = OperatorPart(read=items * HALF, written=items * FULL, launches=1, work=items, depth=1)
            yield Compute(node.path, "elementwise", part, {"item": items}, moved)
