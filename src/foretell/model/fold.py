"""Finding the blocks that repeat, and writing them out again.

A run of operators is a repetition of the run before it when the operators are equal, their module
paths differ in one index that rises evenly, and every tensor they use is either the same outside
tensor each time or sits at the same place one repetition earlier (a carried tensor). Nothing is
declared: a traced model folds as well as one from the zoo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from foretell.model.graph import Block, Flat, Import, Node, Operand, Tensor

OUTSIDE = -2
"""The owner of the model's inputs: no operator, so that the first layer is like the others."""


MOST_TOGETHER = 8
"""How many equal layers may make up one repetition, told apart only by the tensors that they read."""


class Repetition(NamedTuple):
    """`times` repetitions of `length` nodes from node `start`; paths rise at `place`."""

    start: int
    length: int
    times: int
    place: int = -1
    stride: int = 0

    @property
    def end(self) -> int:
        return self.start + self.length * self.times

    @property
    def saved(self) -> int:
        """Nodes that need not be written down."""
        return self.length * (self.times - 1)


def fold(flat: Flat) -> tuple[Block, ...]:
    """The flat graph as blocks, equal neighbours folded into one."""
    nodes = flat.nodes
    owners = _owners(flat)
    runs = _cover(_signatures(flat, owners), nodes, _References(flat, owners), 0, len(nodes))
    return _blocks(flat, owners, runs)


def unfold(blocks: Sequence[Block]) -> Flat:
    """Every repetition written out; the inverse of `fold`."""
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    bases: list[list[int]] = []  # first tensor number of each repetition of each block
    for block in blocks:
        bases.append([])
        own = len(block.tensors)
        for repetition in range(block.times):
            base = len(tensors)
            bases[-1].append(base)
            outside = [_resolve(entry, bases, repetition) for entry in block.imports]
            number = [*range(base, base + own), *outside]
            lift = block.stride * repetition
            for tensor in block.tensors:
                name = raised(tensor.name, block.place, lift)
                tensors.append(msgspec.structs.replace(tensor, storage=number[tensor.storage], name=name))
            for node in block.nodes:
                numbers = [number[tensor] for tensor in _named(node)]
                nodes.append(_renumbered(node, numbers, raised(node.path, block.place, lift)))
    return Flat(tuple(tensors), tuple(nodes))


def written_out(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The same operators as one block that is taken once, after the inputs."""
    flat = unfold(blocks)
    return cut(flat, [Repetition(0, len(flat.nodes), 1)])


def cut(flat: Flat, runs: list[Repetition]) -> tuple[Block, ...]:
    """The flat graph as blocks of these runs of nodes, which cover it in order."""
    return _blocks(flat, _owners(flat), runs)


def _resolve(entry: Import, bases: list[list[int]], repetition: int) -> int:
    if entry.carried >= 0 and repetition > 0:
        return bases[-1][repetition - 1] + entry.carried
    return bases[entry.block][entry.repetition] + entry.tensor


def raised(path: str, place: int, lift: int) -> str:
    """The path of an operator in a later repetition: its number at a place is that much higher."""
    parts = path.split(".")
    if lift == 0 or place >= len(parts) or not parts[place].isdigit():
        return path
    parts[place] = str(int(parts[place]) + lift)
    return ".".join(parts)


def _renumbered(node: Node, numbers: Sequence[int], path: str) -> Node:
    """The node with its tensors called by these numbers, in the order of `_named`."""
    inputs, outputs = len(node.inputs), len(node.inputs) + len(node.outputs)
    return msgspec.structs.replace(
        node,
        path=path,
        inputs=tuple(Operand(operand.name, at) for operand, at in zip(node.inputs, numbers, strict=False)),
        outputs=tuple(numbers[inputs:outputs]),
        keeps=tuple(numbers[outputs:]),
    )


def _owners(flat: Flat) -> list[int]:
    """For each tensor the node that introduces it: the first to name it; OUTSIDE for inputs."""
    owners = [OUTSIDE if tensor.role == "input" else -1 for tensor in flat.tensors]
    for at, node in enumerate(flat.nodes):
        for tensor in _named(node):
            if owners[tensor] == -1:
                owners[tensor] = at
    following = len(flat.nodes) - 1
    for tensor in range(len(owners) - 1, -1, -1):  # never named (a buffer): with its neighbour
        if owners[tensor] == -1:
            owners[tensor] = following
        elif owners[tensor] != OUTSIDE:
            following = owners[tensor]
    return owners


def _named(node: Node) -> list[int]:
    return [*(operand.tensor for operand in node.inputs), *node.outputs, *node.keeps]


def _signatures(flat: Flat, owners: list[int]) -> list[int]:
    """Equal numbers for nodes that are equal but for their place and their tensors' numbers."""
    introduced: list[list[Tensor]] = [[] for _ in flat.nodes]
    for tensor, owner in zip(flat.tensors, owners, strict=True):
        if owner != OUTSIDE:
            introduced[owner].append(tensor)
    known: dict[object, int] = {}
    found: list[int] = []
    for node, tensors in zip(flat.nodes, introduced, strict=True):
        made = tuple((t.dims, t.dtype, t.role, t.trainable) for t in tensors)
        names = tuple(operand.name for operand in node.inputs)
        words = tuple(part for part in node.path.split(".") if not part.isdigit())
        key = (node.operator, node.loops, node.gradients, node.gradient_sums, made, names, words, len(node.keeps))
        found.append(known.setdefault(key, len(known)))
    return found


class _References:
    """Which tensors each node uses, as places relative to the node that introduced them."""

    def __init__(self, flat: Flat, owners: list[int]) -> None:
        slots: Counter[int] = Counter()
        place: list[tuple[int, int]] = []
        for owner in owners:
            place.append((owner, slots[owner]))
            slots[owner] += 1
        storage: list[list[int]] = [[] for _ in flat.nodes]
        self._names: list[list[str]] = [[] for _ in flat.nodes]
        for at, tensor in enumerate(flat.tensors):
            if owners[at] != OUTSIDE:
                storage[owners[at]].append(tensor.storage)
                self._names[owners[at]].append(tensor.name)
        self._of = [
            tuple(place[number] for number in (*_named(node), *storage[at])) for at, node in enumerate(flat.nodes)
        ]

    def repeats(self, run: Repetition, repetition: int) -> bool:
        """Whether this repetition (from the second on) uses tensors as its neighbours do."""
        shift = run.length * repetition
        start = run.start + shift
        for offset in range(run.length):
            here = self._of[start + offset]
            first = self._of[run.start + offset]
            second = self._of[run.start + run.length + offset]
            names = [raised(name, run.place, run.stride * repetition) for name in self._names[run.start + offset]]
            if len(here) != len(first) or names != self._names[start + offset]:
                return False
            for (owner, slot), (owner0, slot0), (owner1, slot1) in zip(here, first, second, strict=True):
                if owner >= start:  # made in this repetition
                    same = owner - shift == owner0 and slot == slot0
                elif owner >= start - run.length and owner >= run.start:  # made in the one before
                    same = owner - shift == owner1 - run.length and slot == slot1 and owner0 < run.start
                else:  # the same outside tensor every time
                    same = (owner, slot) == (owner0, slot0)
                if not same:
                    return False
        return True


def _cover(
    signatures: list[int], nodes: Sequence[Node], references: _References, start: int, end: int
) -> list[Repetition]:
    """Runs that cover [start, end): the fold that saves most, then what lies left and right."""
    runs: list[Repetition] = []
    open_stretches = [(start, end)]
    while open_stretches:
        start, end = open_stretches.pop()
        if end <= start:
            continue
        best = _best(signatures, nodes, references, start, end)
        if best is None:
            runs.append(Repetition(start, end - start, 1))
            continue
        runs.append(best)
        open_stretches += [(start, best.start), (best.end, end)]
    return sorted(runs)


def _best(
    signatures: list[int], nodes: Sequence[Node], references: _References, start: int, end: int
) -> Repetition | None:
    candidates: list[tuple[int, int, int, int]] = []
    for period in _periods(signatures, start, end):
        for first, matched in _matches(signatures, period, start, end):
            times = matched // period + 1
            if times > 1:
                candidates.append(((times - 1) * period, -period, first, matched % period))
    for _, negative, first, slack in sorted(candidates, reverse=True):
        period = -negative
        run = _aligned(signatures, nodes, first, slack, period, end)
        found = _longest(references, run) if run is not None else None
        if found is not None:
            return found
    return None


def _longest(references: _References, run: Repetition) -> Repetition | None:
    """The part of a run that uses tensors alike and saves most: by one period, or by several.

    Layers that are equal but for the mask they read (every sixth sees all places) repeat by sixes.
    """
    best: Repetition | None = None
    for together in range(1, min(MOST_TOGETHER, run.times // 2) + 1):
        skipped = 0
        while skipped + 2 * together <= run.times:
            start, times = run.start + skipped * run.length, (run.times - skipped) // together
            part = Repetition(start, together * run.length, 1, run.place, together * run.stride)
            while part.times < times and references.repeats(part, part.times):
                part = part._replace(times=part.times + 1)
            if part.saved > (best.saved if best else 0):
                best = part
            skipped += max(1, (part.times - 1) * together)
        if best is not None and best.length * best.times == run.length * run.times:
            break
    return best


def _periods(signatures: list[int], start: int, end: int) -> list[int]:
    """Distances at which some operator comes again: the only lengths a block can have."""
    last: dict[int, int] = {}
    gaps: set[int] = set()
    for at in range(start, end):
        before = last.get(signatures[at])
        if before is not None:
            gaps.add(at - before)
        last[signatures[at]] = at
    return sorted(gap for gap in gaps if 2 * gap <= end - start)


def _matches(signatures: list[int], period: int, start: int, end: int) -> list[tuple[int, int]]:
    """Stretches (first, length) in which each node equals the one a period later."""
    found: list[tuple[int, int]] = []
    first = start
    for at in range(start, end - period + 1):
        if at == end - period or signatures[at] != signatures[at + period]:
            if at - first >= period:
                found.append((first, at - first))
            first = at + 1
    return found


def _aligned(
    signatures: list[int], nodes: Sequence[Node], first: int, slack: int, period: int, end: int
) -> Repetition | None:
    """The run that begins where the module tree has a border, or none if its paths do not rise."""
    choices: list[tuple[int, int, Repetition]] = []
    for begin in range(first, first + slack + 1):
        times = 1
        rise = _rise(nodes, begin, period)
        if rise is None:
            continue
        place, stride = rise
        while begin + (times + 1) * period <= end and _follows(signatures, nodes, begin, period, times, place, stride):
            times += 1
        if times > 1:
            indices = {nodes[at].path.split(".")[place] for at in range(begin, begin + period)}
            choices.append((-times, len(indices), Repetition(begin, period, times, place, stride)))
    return min(choices, key=lambda choice: choice[:2])[2] if choices else None


def _follows(
    signatures: list[int], nodes: Sequence[Node], begin: int, period: int, times: int, place: int, stride: int
) -> bool:
    lift = stride * times
    for at in range(begin, begin + period):
        if signatures[at] != signatures[at + times * period]:
            return False
        if raised(nodes[at].path, place, lift) != nodes[at + times * period].path:
            return False
    return True


def _rise(nodes: Sequence[Node], begin: int, period: int) -> tuple[int, int] | None:
    """Where and by how much the paths of the next repetition differ, if evenly in one index."""
    found: set[tuple[int, int]] = set()
    for at in range(begin, begin + period):
        here, there = nodes[at].path.split("."), nodes[at + period].path.split(".")
        differing = [i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b]
        if len(here) != len(there) or len(differing) != 1:
            return None
        place = differing[0]
        if not (here[place].isdigit() and there[place].isdigit()):
            return None
        found.add((place, int(there[place]) - int(here[place])))
        if len(found) > 1:
            return None
    place, stride = found.pop()
    return (place, stride) if stride > 0 else None


def _blocks(flat: Flat, owners: list[int], runs: list[Repetition]) -> tuple[Block, ...]:
    """The inputs as a block without operators, then blocks with their own numbering."""
    inputs = [tensor for tensor, owner in enumerate(owners) if owner == OUTSIDE]
    home = {tensor: (0, 0, number) for number, tensor in enumerate(inputs)}  # block, repetition, own number
    blocks = [Block(tuple(msgspec.structs.replace(flat.tensors[t], storage=home[t][2]) for t in inputs), ())]
    by_node: list[list[int]] = [[] for _ in flat.nodes]
    for tensor, owner in enumerate(owners):
        if owner != OUTSIDE:
            by_node[owner].append(tensor)
    for index, run in enumerate(runs, start=1):
        for repetition in range(run.times):
            first = run.start + repetition * run.length
            own = [tensor for at in range(first, first + run.length) for tensor in by_node[at]]
            home |= {tensor: (index, repetition, number) for number, tensor in enumerate(sorted(own))}
        blocks.append(_block(flat, by_node, home, index, run))
    return tuple(blocks)


def _block(
    flat: Flat, by_node: list[list[int]], home: dict[int, tuple[int, int, int]], index: int, run: Repetition
) -> Block:
    span = range(run.start, run.start + run.length)
    own = {tensor: at for at, tensor in enumerate(sorted(tensor for at in span for tensor in by_node[at]))}
    imports: dict[Import, int] = {}
    nodes: list[Node] = []
    storages: dict[int, int] = {}
    for at in span:
        uses = _uses(flat, by_node, at)
        # the same uses, in the second repetition, tell which imports are carried
        later = _uses(flat, by_node, at + run.length) if run.times > 1 else uses
        numbers: list[int] = []
        for tensor, then in zip(uses, later, strict=True):
            if tensor in own:
                numbers.append(own[tensor])
                continue
            there = home[then]
            carried = there[2] if run.times > 1 and there[:2] == (index, 0) else -1
            entry = Import(*home[tensor], carried=carried)
            numbers.append(len(own) + imports.setdefault(entry, len(imports)))
        named = len(uses) - len(by_node[at])
        nodes.append(_renumbered(flat.nodes[at], numbers[:named], flat.nodes[at].path))
        storages |= dict(zip(by_node[at], numbers[named:], strict=True))
    tensors = tuple(msgspec.structs.replace(flat.tensors[tensor], storage=storages[tensor]) for tensor in own)
    return Block(tensors, tuple(nodes), tuple(imports), run.times, run.place, run.stride)


def _uses(flat: Flat, by_node: list[list[int]], at: int) -> list[int]:
    return [*_named(flat.nodes[at]), *(flat.tensors[tensor].storage for tensor in by_node[at])]
