# pyright: basic
"""Ranks that compute otherwise than their machine: a straggler, and ranks whose computing is a wait.

Two cores cannot hold four busy ranks. Where a wait stands for what an operator computes, they hold as many as one
likes, and what is measured is what ranks say to each other, and when.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from foretell.runtime.clock import HostMarks
from foretell.runtime.counting import NAMESPACES

NAP = 5e-4
"""Seconds of debt that are slept off at once: shorter sleeps are never as short as they should be."""


class Slowed(TorchDispatchMode):
    """Every operator takes so many times as long as it has a core. Messages do not: their threads are the network's.

    It counts what this thread computed, not what the wall's clock showed: a busy machine does not make it slower yet.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor, self._debt = factor, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time()
        result = func(*args, **(kwargs or {}))
        if func.namespace not in NAMESPACES:
            self._owe((self._factor - 1) * (time.thread_time() - start))
        return result

    def _owe(self, seconds: float) -> None:
        self._debt += seconds
        if self._debt > NAP:
            start = time.perf_counter()
            time.sleep(self._debt)
            seconds = time.perf_counter() - start
            self._debt -= seconds
            HostMarks.slept += seconds


LONG = 1e-4
"""Seconds from which a wait can stand for an operator: shorter ones are done."""

LEARNT = 3
"""Times that an operator is done before a wait stands for it; the shortest counts, as the first meets cold caches."""


class Known(NamedTuple):
    """What an operator on such tensors takes of a core, how often it was done, and what it gives."""

    seconds: float
    times: int
    result: Any


class Waited(Slowed):
    """Operators are done a few times; then a wait as long as they had a core stands for each, and zeros for its result.

    Only for those that change nothing they are given: the others, and short ones, are done. What is learnt is nothing.
    """

    def __init__(self, factor: float) -> None:
        super().__init__(factor)
        self._known: dict[Any, Known] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "aten" or not _gives_new(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        key = (func, *map(_likeness, tree_leaves((args, kwargs))))
        known = self._known.get(key)
        if known is not None and known.times >= LEARNT and known.seconds >= LONG:
            self._owe(self._factor * known.seconds)
            return tree_map_only(torch.Tensor, _zeros, known.result)
        start = time.thread_time()
        result = func(*args, **(kwargs or {}))
        seconds = time.thread_time() - start
        self._owe((self._factor - 1) * seconds)
        if known is None:
            known = Known(seconds, 0, tree_map_only(torch.Tensor, _hollow, result))
        self._known[key] = known._replace(seconds=min(seconds, known.seconds), times=known.times + 1)
        return result


def _gives_new(func: Any) -> bool:
    """Whether an operator only gives new tensors: no views, nothing written over."""
    schema = func._schema
    return bool(schema.returns) and not any(one.alias_info for one in (*schema.arguments, *schema.returns))


def _likeness(leaf: Any) -> Any:
    return (leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def _hollow(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same form that keeps no memory of the first result alive."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).zero_()


def paced(factor: float, waits: bool) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly, or waits instead."""
    return Waited(factor) if waits else slowed(factor)


def slowed(factor: float) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly."""
    return Slowed(factor) if factor > 1 else nullcontext()
