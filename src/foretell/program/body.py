"""The actions of one piece of the model for one micro-batch: forward, and backward.

Operators in running order with their local sizes, what travels before and after each, and the memory
that begins and ends to be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from foretell.model.graph import Node
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.resize import skeleton
from foretell.plan.recomputation import Recomputation
from foretell.program.action import Action, Actions, Allocate, Communicate, Compute, Free, Phase
from foretell.program.aliases import storage_owner
from foretell.program.blocks import working_elements
from foretell.program.gathered import GatheredCopies, gathered_copies, keeping_copies
from foretell.program.kept import passes_gradient
from foretell.program.lifetimes import End, Lifetimes, lifetimes
from foretell.program.pass_work import PassWork
from foretell.program.sharding.layout import Layout, TrafficMoment
from foretell.program.weight_copies import weight_copies, widened_for
from foretell.units import WIDTH, Quantity


class NewGradient(NamedTuple):
    """The gradient of a weight, new where the backward pass first meets it; it stays until the update.

    It is no action: where gradients rest, or add up over micro-batches, nothing begins here.
    """

    name: str
    elements: Quantity


class Body(msgspec.Struct, frozen=True):
    """A list of actions with a name: what one layer, or what lies between layers, does in one pass."""

    name: str
    phase: str  # forward, backward, step
    actions: Actions

    def communications(self) -> Iterator[Communicate]:
        return (action for action in self.actions if isinstance(action, Communicate))

    def computations(self) -> Iterator[Compute]:
        return (action for action in self.actions if isinstance(action, Compute))


@dataclass(frozen=True)
class Bodies:
    """Writes the bodies of pieces, under a rule of recomputation."""

    work: PassWork
    rule: Recomputation
    layout: Layout = field(init=False)
    remade: Lifetimes = field(init=False)  # of what runs again, in the backward pass
    kept: Lifetimes = field(init=False)
    dropped: frozenset[tuple[int, int]] = field(init=False)  # storages that are made again
    index: _Index = field(init=False)
    copies: GatheredCopies = field(init=False)
    written: dict[tuple[str, int, int, int], tuple[Action | NewGradient, ...]] = field(
        init=False, default_factory=dict[tuple[str, int, int, int], tuple[Action | NewGradient, ...]]
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", self.work.layout)
        like, recompute = skeleton(self.layout.graph), self.work.recomputed
        copies = gathered_copies(self.layout)
        if self.rule.at_once:  # gathers are none of the operators that are saved
            copies = copies._replace(keepers={})
        like = keeping_copies(like, copies)
        remade = lifetimes(like, recompute.inside)
        object.__setattr__(self, "copies", copies)
        object.__setattr__(self, "remade", remade)
        kept = lifetimes(like, recompute.inside, recompute.again) if recompute.again else remade
        object.__setattr__(self, "kept", kept)
        dropped = ((at, number) for at, index in recompute.again for number in remade.begins[at, index])
        object.__setattr__(self, "dropped", frozenset(dropped))
        object.__setattr__(self, "index", _Index(self.layout, remade))

    def forward(self, at: int, start: int, stop: int, name: str) -> Body:
        """The forward pass of some operators of a block."""
        return Body(name, Phase.FORWARD, _actions(self._once("forward", at, start, stop)))

    def backward(self, at: int, start: int, stop: int, name: str) -> Body:
        """The backward pass of the same operators, with what runs again before it."""
        return Body(name, Phase.BACKWARD, _actions(self._once("backward", at, start, stop)))

    def making(self, at: int, start: int, stop: int) -> tuple[Action | NewGradient, ...]:
        """The actions of a backward pass, and where it makes gradients of weights."""
        return self._once("backward", at, start, stop)

    def _once(self, phase: str, at: int, start: int, stop: int) -> tuple[Action | NewGradient, ...]:
        """Equal layers of several stages share their actions."""
        key = (phase, at, start, stop)
        if key not in self.written:
            write = self._forwards if phase == "forward" else self._backwards
            self.written[key] = tuple(write(at, start, stop))
        return self.written[key]

    def _forwards(self, at: int, start: int, stop: int) -> list[Action | NewGradient]:
        actions: list[Action | NewGradient] = []
        for index in range(start, stop):
            actions += self._forward(at, index, self.kept, again=False)
        return actions

    def _backwards(self, at: int, start: int, stop: int) -> list[Action | NewGradient]:
        actions: list[Action | NewGradient] = []
        block = self.layout.graph.blocks[at]
        reruns = self.work.recomputed.reruns(at, block, start, stop)
        for index in reversed(range(start, stop)):
            actions += self._again(at, reruns.get(index, []))
            node, inside = block.nodes[index], (at, index) in self.work.recomputed.inside
            if inside:
                actions += self._inside_again(at, index, node)
            elif (at, index) in self.work.recomputed.twice:
                actions += self.work.compute(at, index, node, "forward", again=True)
            actions += self._backward(at, index)
            if inside:
                actions += [Free(made.name, made.bytes) for made in self._extras(at, index, node)]
        return actions

    # forward

    def _forward(self, at: int, index: int, lives: Lifetimes, again: bool) -> Iterator[Action]:
        node = self.layout.graph.blocks[at].nodes[index]
        yield from self._copies(at, index, again)
        yield from self.layout.moving(at, TrafficMoment(index, "forward", after=False, gradient=False))
        for number in lives.begins.get((at, index), ()):
            if not (again and (at, number) in self.index.handed_on):
                yield Allocate(self._name(at, number), self._made_bytes(at, index, number), "activation")
        if again or (at, index) not in self.work.recomputed.again:
            yield from self._casts(at, node, Allocate)
        if (at, index) in self.work.summands:  # never runs again
            yield Allocate(f"{self._name(at, node.outputs[0])} partial", self.work.summands[at, index], "activation")
        yield from self._in_blocks(at, index, node, "forward", again)
        yield from self.layout.moving(at, TrafficMoment(index, "forward", after=True, gradient=False))
        for end in lives.forward.get((at, index), ()):
            yield self._free(end)
        yield from self._copies_end(at, index, again)

    def _again(self, at: int, indices: list[int]) -> Iterator[Action]:
        """Operators that run again: what is there already stays, and what no backward pass needs goes at the end."""
        made: dict[str, Allocate] = {}
        for index in indices:
            for action in self._forward(at, index, self.remade, again=True):
                if isinstance(action, Allocate):
                    made[action.name] = action
                elif isinstance(action, Free) and made.pop(action.name, None) is None:
                    continue
                yield action
        if made:
            ends = (end for (block, _), found in self.remade.forward.items() if block == at for end in found)
            passing = {self._name(*end.name) for end in ends}
            yield from (Free(n, one.bytes) for n, one in made.items() if n in passing or one.kind == "gathered")

    def _in_blocks(self, at: int, index: int, node: Node, part: str, again: bool = False) -> Iterator[Action]:
        """A part of an operator, with the copies that a processor's library makes for it."""
        done = self.work.compute(at, index, node, part, again)
        used = [copy for copy in widened_for(self.layout, at, node, part) if done and not copy.kept]
        yield from (Allocate(f"{self._name(at, copy.tensor)} widened", copy.bytes, "working") for copy in used)
        if not (self.layout.block and done and isinstance(node.operator, Convolution)):
            yield from done
            yield from (Free(f"{self._name(at, copy.tensor)} widened", copy.bytes) for copy in used)
            return
        width = self.work.widths[at][index]["y"]
        size = working_elements(node.operator, self.layout.sizes(at, index), part, self.layout.block) * width
        name = f"{self._name(at, node.outputs[0])} blocks"
        yield Allocate(name, size, "working")
        yield from done
        yield Free(name, size)

    def _inside_again(self, at: int, index: int, node: Node) -> Iterator[Action]:
        """An operator runs again for what it keeps besides its operands and its output."""
        yield from self._extras(at, index, node)
        yield from self.work.compute(at, index, node, "forward", again=True)

    def _extras(self, at: int, index: int, node: Node) -> list[Allocate]:
        tensors = self.layout.graph.blocks[at].tensors
        made = [number for number in node.keeps if number < len(tensors) and tensors[number].role == "kept"]
        return [Allocate(self._name(at, n), self._extra_bytes(at, index, n), "activation") for n in made]

    # backward

    def _backward(self, at: int, index: int) -> Iterator[Action | NewGradient]:
        node = self.layout.graph.blocks[at].nodes[index]
        if node.gradients:
            yield from self.layout.moving(at, TrafficMoment(index, "backward", after=True, gradient=True))
            yield from self.layout.moving(at, TrafficMoment(index, "backward", after=False, gradient=False))
            yield from self._gradients_begin(at, index, node)
            yield from self._scattered(at, node, Allocate)
            yield from self._in_blocks(at, index, node, "input_gradient")
            yield from self._scattered(at, node, Free)
            yield from self.layout.moving(at, TrafficMoment(index, "backward", after=False, gradient=True))
            yield from self._in_blocks(at, index, node, "weight_gradient")
            yield from self._new_gradients(at, node)
            yield from self._gradients_end(at, index, node)
        yield from self._casts(at, node, Free)
        if (at, index) in self.work.summands:
            yield Free(f"{self._name(at, node.outputs[0])} partial", self.work.summands[at, index])
        for end in self.remade.backward.get((at, index), ()):
            if end.name in self.dropped:
                yield self._free(end)
        for end in self.kept.backward.get((at, index), ()):
            yield self._free(end)
        for (block, number), keeper in self.copies.keepers.items():
            if (block, keeper) == (at, index):
                yield Free(f"{self._name(at, number)} gathered", self._copy_bytes(at, number))

    def _casts(self, at: int, node: Node, event: type[Allocate] | type[Free]) -> Iterator[Action]:
        """Copies of weights in 16 bits that products keep for their backward pass."""
        for copy in weight_copies(self.layout, at, node):
            if copy.kept:
                name = f"{self._name(at, copy.tensor)} cast"
                yield Allocate(name, copy.bytes, "activation") if event is Allocate else Free(name, copy.bytes)

    def _scattered(self, at: int, node: Node, event: type[Allocate] | type[Free]) -> Iterator[Action]:
        """PyTorch's loss lays the gradient of each row's loss into zeros, as large as the logits, on its way; of logits
        in shares it adds their exponentials to these, and scales the sum."""
        if self.layout.loss_copies and isinstance(node.operator, CrossEntropy):
            logits = node.inputs[0].tensor
            name = f"{self._name(at, logits)} scattered"
            size = self.layout.loss_copies * self.layout.bytes(at, logits)
            yield Allocate(name, size, "gradient") if event is Allocate else Free(name, size)

    def _gradients_begin(self, at: int, index: int, node: Node) -> Iterator[Action]:
        """Memory for gradients of operands, at their last reader: the first one on the way back."""
        if passes_gradient(self.layout.graph.blocks[at], node, self.layout.in_place):
            return
        block = self.layout.graph.blocks[at]
        for operand in node.inputs:
            number = operand.tensor
            if (
                number >= len(block.tensors)
                or self.index.reader.get((at, number)) != index
                or (at, number) not in self.index.flows
            ):
                continue
            yield Allocate(f"{self._name(at, number)} gradient", self.layout.gradient_bytes(at, number), "gradient")

    def _new_gradients(self, at: int, node: Node) -> Iterator[NewGradient]:
        graph = self.layout.graph
        for operand in node.inputs:
            home, number = storage_owner(graph, at, operand.tensor)
            tensor = graph.blocks[home].tensors[number]
            if tensor.role == "parameter" and tensor.trainable:
                yield NewGradient(f"{self._name(at, operand.tensor)} made", self.layout.elements_of(home, number))

    def _gradients_end(self, at: int, index: int, node: Node) -> Iterator[Action]:
        block = self.layout.graph.blocks[at]
        for number in node.outputs[:1]:
            reader = self.index.reader.get((at, number))
            if reader is None or (at, number) not in self.index.flows:
                continue
            if not passes_gradient(block, block.nodes[reader], self.layout.in_place):
                yield Free(f"{self._name(at, number)} gradient", self.layout.gradient_bytes(at, number))

    # copies in another placement

    def _copies(self, at: int, index: int, again: bool) -> Iterator[Action]:
        for number, instead in self.copies.begins.get((at, index), {}).items():
            kind = "activation" if self._keeps_copy(at, number, again) else "gathered"
            yield Allocate(f"{self._name(at, number)} gathered", self.layout.wire_bytes(at, number, instead), kind)

    def _copies_end(self, at: int, index: int, again: bool) -> Iterator[Action]:
        """A gathered copy lives until the last operator of the block that reads it, if none keeps it."""
        for number, instead in self.copies.ends.get((at, index), {}).items():
            if not self._keeps_copy(at, number, again):
                yield Free(f"{self._name(at, number)} gathered", self.layout.wire_bytes(at, number, instead))

    def _keeps_copy(self, at: int, number: int, again: bool) -> bool:
        """Whether a copy that is made now waits for the backward pass: not if its reader runs again there."""
        keeper = self.copies.keepers.get((at, number))
        return keeper is not None and (again or (at, keeper) not in self.work.recomputed.again)

    def _copy_bytes(self, at: int, number: int) -> Quantity:
        found = (made[number] for (block, _), made in self.copies.begins.items() if block == at and number in made)
        return self.layout.wire_bytes(at, number, next(found))

    # names and sizes

    def _name(self, at: int, number: int) -> str:
        block = self.layout.graph.blocks[at]
        if number >= len(block.tensors):
            return f"{at}.import{number - len(block.tensors)}"
        tensor = block.tensors[number]
        return f"{at}.{number}{f' {tensor.name}' if tensor.name else ''}"

    def _made_bytes(self, at: int, index: int, number: int) -> Quantity:
        tensor = self.layout.graph.blocks[at].tensors[number]
        if tensor.role != "kept":
            return self.layout.held_bytes(at, number)
        return self._extra_bytes(at, index, number)

    def _extra_bytes(self, at: int, index: int, number: int) -> Quantity:
        """A tensor made only to be kept is as large as the loops it spans: share it out as they are."""
        node = self.layout.graph.blocks[at].nodes[index]
        tensor = self.layout.graph.blocks[at].tensors[number]
        whole = {loop.name: loop.dims for loop in node.loops}
        for name, (loops, _) in node.operator.extras().items():
            dims = tuple(dim for loop in loops for dim in whole.get(loop, ()))
            if name == tensor.name and dims == tensor.dims:
                return self.layout.kept_shape(at, index, loops) * WIDTH[tensor.dtype]
        return self.layout.elements(tensor) * WIDTH[tensor.dtype]

    def _free(self, end: End) -> Free:
        block, number = end.name
        home = self.layout.graph.blocks[block]
        size = self._size(block, number) if number < len(home.tensors) else self._imported_size(block, number)
        return Free(self._name(block, number), size, end.when)

    def _size(self, at: int, number: int) -> Quantity:
        tensor = self.layout.graph.blocks[at].tensors[number]
        if tensor.role != "kept":
            return self.layout.held_bytes(at, number)
        index = next(i for i, node in enumerate(self.layout.graph.blocks[at].nodes) if number in node.keeps)
        return self._extra_bytes(at, index, number)

    def _imported_size(self, at: int, number: int) -> Quantity:
        home, storage = storage_owner(self.layout.graph, at, number)
        return self._size(home, storage)


def _actions(written: tuple[Action | NewGradient, ...]) -> Actions:
    return tuple(one for one in written if not isinstance(one, NewGradient))


class _Index:
    """What bodies look up about a layout, found once."""

    def __init__(self, layout: Layout, lives: Lifetimes) -> None:
        ended = {end.name for found in (lives.forward, lives.backward) for ends in found.values() for end in ends}
        # tensors that are only for other blocks: they exist already when a block runs again
        self.handed_on = {
            (at, number) for (at, _), made in lives.begins.items() for number in made if (at, number) not in ended
        }
        self.reader: dict[tuple[int, int], int] = {}  # who reads a tensor last, of those that have a backward pass
        self.flows: set[tuple[int, int]] = set()  # tensors that a gradient comes back to
        for at, block in enumerate(layout.graph.blocks):
            for index, node in enumerate(block.nodes):
                for operand in node.inputs:
                    if node.gradients:
                        self.reader[at, operand.tensor] = index
                if node.gradients:
                    self.flows.add((at, node.outputs[0]))
