"""When each tensor's memory begins and ends to be used, within the blocks of a folded graph.

A storage is freed after the last operator that reads it, or, where autograd keeps it, after the
backward pass of the first operator that keeps it, if there is one. The operator may belong to a later
block than the one that made the tensor: then that block frees what it imported.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.model.evaluated import trains
from foretell.model.graph import Block, Graph
from foretell.program.aliases import storage_owner


class Name(NamedTuple):
    """A storage as a block calls it: its own tensor, or the one it imports."""

    block: int
    number: int  # of a tensor, or at and after len(tensors) of an import


class End(NamedTuple):
    """A storage that is used no longer after a node, in all repetitions or some."""

    name: Name
    when: str  # every, first, last, rest (all but the first)


class Lifetimes(NamedTuple):
    """For each block: storages begun at a node, and ended after it in the forward or backward pass."""

    begins: dict[tuple[int, int], tuple[int, ...]]
    forward: dict[tuple[int, int], tuple[End, ...]]
    backward: dict[tuple[int, int], tuple[End, ...]]


@forgettable
@functools.lru_cache(maxsize=64)
def lifetimes(
    graph: Graph, inside: frozenset[tuple[int, int]] = frozenset(), again: frozenset[tuple[int, int]] = frozenset()
) -> Lifetimes:
    """Begin and end of every activation.

    Operators (block, node) whose `inside` runs again keep their operands and nothing else. Those that run `again`
    keep what they read from others that do not; what they make is kept by nobody in their block.
    """
    comes_back = trains(graph)
    users = {at: _Users(at, block, inside, again, comes_back) for at, block in enumerate(graph.blocks)}
    importers = _importers(graph)
    begins: dict[tuple[int, int], tuple[int, ...]] = {}
    forward: dict[tuple[int, int], list[End]] = defaultdict(list)
    backward: dict[tuple[int, int], list[End]] = defaultdict(list)
    for at, block in enumerate(graph.blocks):
        use = users[at]
        for index in range(len(block.nodes)):
            begins[at, index] = tuple(use.made[index])
        for number in (n for made in use.made.values() for n in made):
            if number in use.keeper:
                backward[at, use.keeper[number]].append(End(Name(at, number), "every"))
            elif (at, number) not in importers:
                last = use.last.get(number, use.maker[number])
                forward[at, last].append(End(Name(at, number), "every"))
        for number in range(len(block.tensors), len(block.tensors) + len(block.imports)):
            for index, end, back in _imported(graph, at, block, number, users, importers):
                (backward if back else forward)[at, index].append(end)
    return Lifetimes(
        begins,
        {key: tuple(ends) for key, ends in forward.items()},
        {key: tuple(ends) for key, ends in backward.items()},
    )


class _Users:
    """Who makes, reads last and keeps first each storage of one block."""

    def __init__(
        self,
        at: int,
        block: Block,
        inside: frozenset[tuple[int, int]],
        again: frozenset[tuple[int, int]],
        comes_back: bool,  # whether there are backward passes
    ) -> None:
        self.made: dict[int, list[int]] = defaultdict(list)
        self.maker: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.keeper: dict[int, int] = {}
        self.again = {index for index in range(len(block.nodes)) if (at, index) in again}
        first = 0  # of the operators in a row that run again
        for index, node in enumerate(block.nodes):
            for number in node.outputs:
                self._make(block, number, index)
            for operand in node.inputs:
                self.last[storage_number(block, operand.tensor)] = index
            if index in self.again:  # what they read is there until the last of them went back
                first = first if index - 1 in self.again else index
                self._keep(block, [operand.tensor for operand in node.inputs], first)
            elif (at, index) in inside:  # what it keeps can be made again from what it reads
                self._keep(block, [operand.tensor for operand in node.inputs], index)
            else:
                for number in node.keeps:
                    if number < len(block.tensors) and block.tensors[number].role == "kept":
                        self._make(block, number, index)
                self._keep(block, node.keeps if comes_back else (), index)

    def _keep(self, block: Block, numbers: Iterable[int], index: int) -> None:
        for storage in (storage_number(block, number) for number in numbers):
            if self.maker.get(storage) not in self.again:
                self.keeper.setdefault(storage, index)

    def _make(self, block: Block, number: int, index: int) -> None:
        if block.tensors[number].storage == number and number not in self.maker:
            self.made[index].append(number)
            self.maker[number] = index


def storage_number(block: Block, number: int) -> int:
    """Whose memory a tensor uses, as its block calls it."""
    return number if number >= len(block.tensors) else block.tensors[number].storage


class _StorageReader(NamedTuple):
    """A block that imports a storage, under its own number: of one repetition, or what its last one carried."""

    block: int
    number: int
    carried: bool
    last: bool  # whether it is that of the last repetition, which nobody carries on


def _importers(graph: Graph) -> dict[tuple[int, int], list[_StorageReader]]:
    """For each storage (block, tensor), who imports it, in running order; repetitions import what was carried."""
    found: dict[tuple[int, int], list[_StorageReader]] = defaultdict(list)
    for at, block in enumerate(graph.blocks):
        for place, entry in enumerate(block.imports):
            number = len(block.tensors) + place
            home = storage_owner(graph, at, number)
            found[home].append(_outside(graph, at, number))
            if entry.carried >= 0:
                found[storage_owner(graph, at, entry.carried)].append(
                    _StorageReader(at, number, carried=True, last=False)
                )
    return found


def _outside(graph: Graph, at: int, number: int) -> _StorageReader:
    entry = graph.blocks[at].imports[number - len(graph.blocks[at].tensors)]
    return _StorageReader(at, number, carried=False, last=entry.repetition == graph.blocks[entry.block].times - 1)


def _imported(
    graph: Graph,
    at: int,
    block: Block,
    number: int,
    users: dict[int, _Users],
    importers: dict[tuple[int, int], list[_StorageReader]],
) -> list[tuple[int, End, bool]]:
    """Where a block ends the use of a tensor it imports, if it is the one to do so."""
    entry = block.imports[number - len(block.tensors)]
    first = _ends(graph, storage_owner(graph, at, number), _outside(graph, at, number), users, importers)
    if entry.carried < 0:
        when = "every" if block.times == 1 else ("first" if first and first[1] else "last")
        return [(first[0], End(Name(at, number), when), first[1])] if first else []
    home = storage_owner(graph, at, entry.carried)
    rest = _ends(graph, home, _StorageReader(at, number, carried=True, last=False), users, importers)
    if first == rest and first is not None:
        return [(first[0], End(Name(at, number), "every"), first[1])]
    found = [(ends, when) for ends, when in ((first, "first"), (rest, "rest")) if ends]
    return [(ends[0], End(Name(at, number), when), ends[1]) for ends, when in found]


def _ends(
    graph: Graph,
    home: tuple[int, int],
    reader: _StorageReader,
    users: dict[int, _Users],
    importers: dict[tuple[int, int], list[_StorageReader]],
) -> tuple[int, bool] | None:
    """(node, in the backward pass) after which this reader ends the storage; None if another does."""
    tensor = graph.blocks[home[0]].tensors[home[1]]
    if tensor.role not in ("activation", "kept") or home[1] in users[home[0]].keeper:
        return None
    readers = [
        other
        for other in importers[home]
        if (other.number in users[other.block].last or other.number in users[other.block].keeper)
        and not (reader.last and other.carried)
        and not (reader.carried and other.last)
    ]
    keepers = [r for r in readers if r.number in users[r.block].keeper]
    if keepers:
        return (users[reader.block].keeper[reader.number], True) if keepers[0] == reader else None
    if readers and readers[-1] == reader:
        return users[reader.block].last[reader.number], False
    return None
