"""What a piece of the model computes and sends in its two passes: all that its seconds depend on.

The bodies (`program.body`) have this with the memory that begins and ends between it. Searches price many more local
programs than they ask the memory of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.model.autocast import Widths
from foretell.model.graph import Node
from foretell.model.memory_order import compiled_convolutions, turned_convolutions
from foretell.model.resize import skeleton
from foretell.plan.recomputation import Recomputation
from foretell.program.action import Action, Actions, Communicate, Compute
from foretell.program.casts import casting, operand_widths
from foretell.program.recomputed import Recomputed, recomputed
from foretell.program.sharding.layout import Layout, TrafficMoment, has_weight_gradient
from foretell.program.weight_copies import widening
from foretell.units import Quantity

FORWARD: Final = (("forward", False, False), ("forward", True, False))
"""When something travels around an operator: what it reads, and what it made."""

BACKWARD: Final = (("backward", True, True), ("backward", False, False), ("backward", False, True))
"""The same in the backward pass: the gradient of what it made, what it reads once more, the gradient of that."""


class PassWork:
    """Writes what pieces compute and send, under a rule of recomputation."""

    def __init__(self, layout: Layout, rule: Recomputation) -> None:
        self.layout = layout
        self.moved = {(at, moment.node) for at, moment in layout.travels}
        like = skeleton(layout.graph)
        by_compiler = compiled_convolutions(like) if layout.compiled else frozenset[tuple[int, int]]()
        self.turned = turned_convolutions(like) | by_compiler
        self.widths: Widths = operand_widths(like, layout.casts)
        self.recomputed: Recomputed = recomputed(like, rule)
        self.summands: dict[tuple[int, int], Quantity] = {}  # bytes of products that are saved beside their sums
        if rule.saves_sums:
            came = _scattered(layout)
            self.summands = {place: came[place] for place in came if place not in self.recomputed.again}
            self.recomputed = self.recomputed._replace(again=self.recomputed.again.difference(came))

    def forward(self, at: int, start: int, stop: int) -> Actions:
        """Of the forward pass of some operators of a block."""
        return tuple(action for index in range(start, stop) for action in self._forward(at, index, again=False))

    def backward(self, at: int, start: int, stop: int) -> Actions:
        """Of the backward pass of the same operators, with what runs again before it."""
        block, actions = self.layout.graph.blocks[at], list[Action]()
        reruns = self.recomputed.reruns(at, block, start, stop)
        for index in reversed(range(start, stop)):
            for other in reruns.get(index, ()):
                actions += self._forward(at, other, again=True)
            if (at, index) in self.recomputed.inside | self.recomputed.twice:
                actions += self.compute(at, index, block.nodes[index], "forward", again=True)
            if block.nodes[index].gradients:
                actions += self._backward(at, index, block.nodes[index])
        return tuple(actions)

    def messages(self, at: int, start: int, stop: int) -> Iterator[Communicate]:
        """Of both passes, whatever runs again."""
        for index in range(start, stop):
            if (at, index) in self.moved:
                back = BACKWARD if self.layout.graph.blocks[at].nodes[index].gradients else ()
                for moment in (*FORWARD, *back):
                    yield from self.layout.moving(at, TrafficMoment(index, *moment))

    def _forward(self, at: int, index: int, again: bool) -> Iterator[Action]:
        done = self.compute(at, index, self.layout.graph.blocks[at].nodes[index], "forward", again)
        if (at, index) not in self.moved:
            yield from done
            return
        before, after = (self.layout.moving(at, TrafficMoment(index, *moment)) for moment in FORWARD)
        yield from (*before, *done, *after)

    def _backward(self, at: int, index: int, node: Node) -> Iterator[Action]:
        inputs = self.compute(at, index, node, "input_gradient")
        weights = self.compute(at, index, node, "weight_gradient")
        if (at, index) not in self.moved:
            yield from (*inputs, *weights)
            return
        given, read, passed = (self.layout.moving(at, TrafficMoment(index, *moment)) for moment in BACKWARD)
        yield from (*given, *read, *inputs, *passed, *weights)

    def compute(self, at: int, index: int, node: Node, part: str, again: bool = False) -> tuple[Compute, ...]:
        """A part of an operator, if it costs anything; whatever runs again, it is the same one."""
        layout, known = self.layout, self.layout.computed.get((at, index))
        if known is None:
            known = layout.computed[at, index] = layout.alike.parts.setdefault(layout.sizes_key(at, index), {})
        if (part, False) not in known:
            known[part, False] = tuple(self._computed(at, index, node, part))
        if (part, again) not in known:
            known[part, True] = tuple(msgspec.structs.replace(one, again=True) for one in known[part, False])
        return known[part, again]

    def _computed(self, at: int, index: int, node: Node, part: str) -> Iterator[Compute]:
        sizes = self.layout.sizes(at, index)
        cost = node.cost_at(part, self.widths[at][index], sizes)
        if cost.nothing:
            return
        yield from widening(self.layout, at, node, part)
        yield from casting(self.layout, at, index, node, part)
        role = part
        if part == "weight_gradient" and not has_weight_gradient(self.layout.graph, at, node):
            role = "input_gradient"  # of a product of two activations: somebody waits for it
        last = (at, index) in self.turned
        yield Compute(
            node.path, node.operator.priced_as, role, sizes, cost, density=node.operator.density(sizes), last=last
        )


def _scattered(layout: Layout) -> dict[tuple[int, int], Quantity]:
    """Bytes of what operators bring that is summed into shares."""
    return {
        (at, moment.node): sum(one.payload for one in found if one.kind == "reduce-scatter")
        for (at, moment), found in layout.travels.items()
        if _scatters(moment, found)
    }


def _scatters(moment: TrafficMoment, messages: tuple[Communicate, ...]) -> bool:
    """Whether what an operator brings is summed into shares: of all collectives the one that torchtitan saves."""
    return moment.brings and any(one.kind == "reduce-scatter" for one in messages)
