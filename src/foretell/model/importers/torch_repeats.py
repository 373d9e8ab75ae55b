# pyright: basic
"""Layers that are alike are traced three times, not eighty times; the others are written into the graph.

A list of layers often comes in periods: all of them alike, or five of one kind and one of another. All but three
periods (and what is left over at the end) are taken out while the module runs, and the block that the trace repeats
is then repeated that much oftener. Where layers are not alike by what they hold, or the graph of the few does not say
how it goes on, all of them are traced.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import torch

from foretell.model.fold import raised
from foretell.model.graph import Block, Import

TRACED: Final = 3
"""Periods that are traced: what stands before the first and behind the last may differ from what stands between."""

LONGEST_PERIOD: Final = 16

OWN_NUMBER: Final = ("layer_idx", "layer_id", "layer_number")
"""Attributes by which a layer knows its place; what it holds does not depend on them."""


class NotAlike(Exception):
    """The graph of a few layers does not say how it goes on."""


class LeftOut(NamedTuple):
    """Layers of a list that are not traced: `count` of them, which are whole periods from number `start` on."""

    path: str
    start: int
    period: int
    count: int

    def standing_for(self, path: str) -> int:
        """How many layers a place in the first of the periods stands for; any other place for itself alone."""
        head = path.removeprefix(f"{self.path}.")
        number = head.partition(".")[0]
        first = head != path and number.isdigit() and 0 <= int(number) - self.start < self.period
        return 1 + self.count // self.period if first else 1


def times_in_all(path: str, left_out: Iterable[LeftOut]) -> int:
    """How often what happened at a place of the traced layers happens in the whole module."""
    found = 1
    for one in left_out:
        found *= one.standing_for(path)
    return found


@contextmanager
def shortened(module: torch.nn.Module) -> Iterator[tuple[LeftOut, ...]]:
    """Inside, lists of layers that are alike have a few of them."""
    found: list[LeftOut] = []
    before: list[tuple[torch.nn.ModuleList, Any]] = []
    for path, part in module.named_modules():
        if type(part) is torch.nn.ModuleList and (own := _left_out(path, part)):
            found.append(own)
            before.append((part, part._modules))
    found = [one for one in found if not any(one.path.startswith(f"{other.path}.") for other in found)]
    try:
        for layers, modules in before:
            own = next((one for one in found if module.get_submodule(one.path) is layers), None)
            if own is not None:
                kept = len(modules) - own.count
                layers._modules = type(modules)(list(modules.items())[:kept])
        yield tuple(found)
    finally:
        for layers, modules in before:
            layers._modules = modules


def _left_out(path: str, layers: torch.nn.ModuleList) -> LeftOut | None:
    """The most layers that need not be traced."""
    count = len(layers)
    if count <= TRACED or not path or _shared(layers):
        return None
    alike = [_signature(layer) for layer in layers]
    best: LeftOut | None = None
    for period in range(1, min(LONGEST_PERIOD, count // TRACED) + 1):
        start = count - period
        while start and alike[start - 1] == alike[start - 1 + period]:
            start -= 1
        left_out = max(0, (count - start) // period - TRACED) * period
        if left_out > (best.count if best else 0):
            best = LeftOut(path, start, period, left_out)
    return best


def _shared(layers: torch.nn.ModuleList) -> bool:
    """Whether a weight belongs to several layers."""
    weights = [id(weight) for layer in layers for weight in layer.parameters()]
    return len(set(weights)) < len(weights)


def _signature(layer: torch.nn.Module) -> Hashable:
    """What a layer holds and how it is set, without its number."""
    return tuple(
        (name, type(part), tuple(_tensors(part)), tuple(_settings(part))) for name, part in layer.named_modules()
    )


def _tensors(part: torch.nn.Module) -> Iterator[Hashable]:
    for name, tensor in (*part._parameters.items(), *part._buffers.items()):
        yield name, None if tensor is None else (tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


def _settings(part: torch.nn.Module) -> Iterator[Hashable]:
    """What is written on a module; objects that layers share are told apart, functions and classes too."""
    for name, value in vars(part).items():
        if name.startswith("_") or name in OWN_NUMBER:
            continue
        plain = value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.Size))
        many = isinstance(value, (list, tuple, dict, set, functools.partial))
        yield name, value if plain else repr(value) if many else getattr(value, "__qualname__", id(value))


def lengthened(blocks: tuple[Block, ...], left_out: Iterable[LeftOut]) -> tuple[Block, ...]:
    """The blocks of the whole module from those of a few layers."""
    for one in left_out:
        blocks = _with(blocks, one)
    return blocks


def _with(blocks: tuple[Block, ...], left_out: LeftOut) -> tuple[Block, ...]:
    at = _repeated(blocks, left_out)
    block, more = blocks[at], left_out.count // blocks[at].stride
    longer = msgspec.structs.replace(block, times=block.times + more)
    return (*blocks[:at], longer, *(_behind(each, at, block, more, left_out) for each in blocks[at + 1 :]))


def _repeated(blocks: tuple[Block, ...], left_out: LeftOut) -> int:
    """The block that all these layers are repetitions of."""
    place, inside = len(left_out.path.split(".")), f"{left_out.path}."
    own = [at for at, block in enumerate(blocks) if any(node.path.startswith(inside) for node in block.nodes)]
    repeated = [
        at
        for at in own
        if blocks[at].times > 1
        and blocks[at].place == place
        and min(int(node.path.split(".")[place]) for node in blocks[at].nodes) >= left_out.start
    ]
    if len(repeated) != 1:
        raise NotAlike
    block = blocks[repeated[0]]
    even = block.stride % left_out.period == 0 or left_out.period % block.stride == 0
    if not even or left_out.count % block.stride or block.times * block.stride < 2 * left_out.period:
        raise NotAlike
    return repeated[0]


def _behind(block: Block, at: int, repeated: Block, more: int, left_out: LeftOut) -> Block:
    """A block behind the layers: numbers of later layers are higher, and what it reads is of the last repetition."""
    place, inside = len(left_out.path.split(".")), f"{left_out.path}."

    def lifted(path: str) -> str:
        return raised(path, place, left_out.count) if path.startswith(inside) else path

    def of_last(entry: Import) -> Import:
        if entry.block != at:
            return entry
        if entry.repetition != repeated.times - 1:
            raise NotAlike
        return msgspec.structs.replace(entry, repetition=entry.repetition + more)

    replace = msgspec.structs.replace
    return replace(
        block,
        tensors=tuple(replace(one, name=lifted(one.name)) for one in block.tensors),
        nodes=tuple(replace(one, path=lifted(one.path)) for one in block.nodes),
        imports=tuple(map(of_last, block.imports)),
    )
