"""Which operators the program divides along an axis, and along which of their loops: what runs is what was priced."""

from __future__ import annotations

from foretell.model.graph import Block
from foretell.plan.setting import Setting
from foretell.program.lower import lower


def divided(setting: Setting, axis: str) -> dict[str, frozenset[str]]:
    """Path of every operator, repetitions too, to the loops of it that an axis divides; none where it is whole."""
    layout = lower(setting).layout
    (spread,) = (one for one in layout.spreads if one.axis.name == axis)
    found: dict[str, frozenset[str]] = {}
    for at, block in enumerate(layout.graph.blocks):
        for index, node in enumerate(block.nodes):
            loops = frozenset(place.loop for place in spread.places[at, index])
            for repetition in range(block.times):
                found.setdefault(of_repetition(block, node.path, repetition), loops)
    return found


def of_repetition(block: Block, path: str, repetition: int) -> str:
    """A path as one repetition of its block has it."""
    if block.times == 1:
        return path
    parts = path.split(".")
    parts[block.place] = str(int(parts[block.place]) + repetition * block.stride)
    return ".".join(parts)
