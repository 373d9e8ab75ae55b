# pyright: basic
"""Ranks that compute otherwise than their machine: a straggler, and ranks whose computing is a wait.

Two cores cannot hold four busy ranks. Where a wait stands for what an operator computes, they hold as many as one
likes, and what is measured is what ranks say to each other, and when.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
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


LONG = 2e-5
"""Seconds from which a wait can stand for an operator: shorter ones are done as soon as they are left out."""

LEARNT = 3
"""Times that an operator is done before a wait stands for it; the shortest counts, as the first meets cold caches."""

MANY = 1024
"""Elements from which a tensor is data. Fewer may be a number that somebody reads: how many updates there were."""

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Tensors with data; of others only forms are asked."""

LATE = 2e-3
"""Seconds by which a rank may be behind and still make up for it in the next waits. What it takes to find out that
there is nothing to do is more than a small operator takes."""


class Known(NamedTuple):
    """What an operator on such tensors takes of a core, how often it was done, and what it gives."""

    seconds: float
    times: int
    result: Any


class Waited(Slowed):
    """Operators are done a few times; then a wait as long as they had a core stands for each, and zeros for its result.

    What an operator would write over stays as it is; views are made. What is learnt is nothing. The time that passes
    here meanwhile is part of the wait: with four ranks on two cores it is not little.
    """

    def __init__(self, factor: float) -> None:
        super().__init__(factor)
        self._known: dict[Any, Known] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # a tensor in shares: this rank's comes by here next
        if func.namespace in NAMESPACES or any(kind not in PLAIN for kind in types):
            return func(*args, **(kwargs or {}))
        entered = time.perf_counter()
        result, seconds = self._result(func, args, kwargs or {})
        self._owe(self._factor * seconds - (time.perf_counter() - entered))
        self._debt = max(self._debt, -LATE)
        return result

    def _result(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """What an operator gives, or stands for it; and the seconds that it takes of a core."""
        leaves = tree_leaves((args, kwargs))
        gives = _gives(func) if any(map(_has_many, leaves)) else None
        key = (func, *map(_likeness, leaves))
        known = self._known.get(key)
        if gives and known is not None and known.times >= LEARNT and known.seconds >= LONG:
            return gives(known.result, args), known.seconds
        start = time.thread_time()
        result = func(*args, **kwargs)
        seconds = time.thread_time() - start
        if gives:
            before = known or Known(seconds, 0, tree_map_only(torch.Tensor, _hollow, result))
            self._known[key] = before._replace(seconds=min(seconds, before.seconds), times=before.times + 1)
        return result, seconds


@functools.cache
def _gives(func: Any) -> Callable[[Any, Any], Any] | None:
    """How to come by the result of an operator that is not done; none of those whose result has a meaning."""
    if func.namespace != "aten":
        return None
    schema = func._schema
    written = [at for at, one in enumerate(schema.arguments) if one.alias_info and one.alias_info.is_write]
    if not any(one.alias_info for one in (*schema.arguments, *schema.returns)):
        return _anew if schema.returns else None
    if written == [0] and _plain(schema.name):
        return (lambda result, args: args[0]) if schema.returns else (lambda result, args: None)
    return None


WRITERS = ("add_", "sub_", "mul_", "div_", "addcmul_", "addcdiv_", "lerp_", "sqrt_")
"""Operators that change numbers which are there: what fills new memory (`copy_`) is done."""


def _plain(name: str) -> bool:
    return name.removeprefix("aten::").removeprefix("_foreach_") in WRITERS


def _anew(result: Any, args: Any) -> Any:
    return tree_map_only(torch.Tensor, _zeros, result)


def _has_many(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() >= MANY


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


def is_paced() -> bool:
    """Whether this thread does."""
    return any(isinstance(mode, Slowed) for mode in _get_current_dispatch_mode_stack())


def slowed(factor: float) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly."""
    return Slowed(factor) if factor > 1 else nullcontext()
