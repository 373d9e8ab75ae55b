# pyright: basic
"""Ranks that compute otherwise than their machine: a straggler, and ranks whose computing is a wait.

Two cores cannot hold four busy ranks. Where a wait stands for what an operator computes, they hold as many as one
likes, and what is measured is what ranks say to each other, and when. Waits last as long as operators had a core, or as
long as is predicted: then nothing is compared with a prediction but messages, and what they wait for.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map_only

from foretell.runtime import journal
from foretell.runtime.assignment import Assignment
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
        leaves = [*_leaves(args), *_leaves(kwargs.values())]
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


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Arguments, one by one: operators have lists, and nothing deeper. (Torch's trees take longer than they do.)"""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _has_many(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() >= MANY


def _likeness(leaf: Any) -> Any:
    """What of an argument an operator's time can depend on: of numbers like Adam's, which change with every step, that
    there is one."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.stride(), leaf.dtype
    return float if isinstance(leaf, float) else leaf


def _hollow(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same form that keeps no memory of the first result alive."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).zero_()


BEHIND = 0.1
"""Seconds by which a rank whose waits are predicted may be behind them: a phase of many small operators takes what the
next ones have left over."""


class ClockReading(NamedTuple):
    """When this thread last was let go, by the wall's clock and by its own."""

    wall: float
    own: float

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.perf_counter(), time.thread_time())

    def worked(self) -> float:
        """Seconds since then, but for those in which it stood still: code that is not Python's waits, too, as
        DistributedDataParallel for the last of its buckets."""
        passed, own = time.perf_counter() - self.wall, time.thread_time() - self.own
        return own if passed > STILL and own < passed / 5 else passed


STILL = 5e-3
"""Seconds without a core from which a thread is said to wait for others: one that waits for a core has it before."""


class PredictedWaits(Waited):
    """Waits that add up to what is predicted for each phase of a step, shared out as operators had a core.

    Shares are those of the step before. Where its operators were slower than they are now, as on a machine that has
    other things to do, they come to less than is predicted: the rest is waited for before the optimizer.

    Whatever else this thread does is part of its waits, Python between two operators too: with more ranks than cores
    that is many times what it is on a core of one's own. Messages, and waiting for them, are not.
    """

    def __init__(self, factor: float, phases: Mapping[str, float]) -> None:
        super().__init__(factor)
        self._phases = phases
        self._learnt: dict[str, float] = defaultdict(float)  # seconds of this step
        self._times: dict[str, float] = {}  # that a wait is longer than what was learnt, in each phase
        self._waited: dict[str, float] = defaultdict(float)  # seconds of this step, what was done included
        self._phase, self._let_go = "", ClockReading.now()
        self._wait = dist.Work.wait
        self._updates, self._spoke = 0, False  # steps of the optimizer, and whether one talked to other ranks

    def __enter__(self) -> PredictedWaits:
        dist.Work.wait = lambda *args, **kwargs: self._apart(self._wait, args, kwargs)
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        dist.Work.wait = self._wait
        super().__exit__(*problem)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        if journal.here().phase != self._phase:
            self._enter(journal.here().phase)
        if func.namespace in NAMESPACES or any(kind not in PLAIN for kind in types):
            return self._apart(func, args, kwargs or {})
        result, seconds = self._result(func, args, kwargs or {})
        self._learnt[self._phase] += seconds
        share = self._factor * self._times.get(self._phase, 1.0) * seconds
        self._spend(self._phase, min(share, self._left(self._phase)))
        return result

    def update(self, step: Callable[[], Any]) -> None:
        """A step of the optimizer: many small operators, for which one wait stands as soon as they are learnt, unless
        ranks talk to each other in it."""
        self._enter(journal.here().phase)
        for phase in self._phases:
            if phase != self._phase:
                self._spend(phase, self._left(phase))
        if self._updates < LEARNT or self._spoke:
            self._updates += 1
            step()
        self._spend(self._phase, self._left(self._phase))

    def _enter(self, phase: str) -> None:
        """Another phase begins. What was waited for at the end of the last one, as its buckets, is nobody's work."""
        if self._phase == "optimizer":  # a step is over
            self._times = {name: self._phases.get(name, 0.0) / max(1e-9, took) for name, took in self._learnt.items()}
            self._learnt.clear()
            self._waited.clear()
            self._debt = max(self._debt, 0.0)  # who learnt operators in a step is behind, and stays so
        self._phase, self._let_go = phase, ClockReading.now()

    def _apart(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Something that does not count as computing."""
        self._spoke = self._spoke or self._phase == "optimizer"
        self._pay(0.0)
        result = function(*args, **kwargs)
        self._let_go = ClockReading.now()
        return result

    def _left(self, phase: str) -> float:
        """Seconds of what is predicted for a phase that are still to be waited in this step."""
        return max(0.0, self._factor * self._phases.get(phase, 0.0) - self._waited[phase])

    def _spend(self, phase: str, seconds: float) -> None:
        self._waited[phase] += seconds
        self._pay(seconds)

    def _pay(self, seconds: float) -> None:
        """Be so many seconds further on than at the last time, what was done since then included."""
        self._owe(seconds - self._let_go.worked())
        self._debt = max(self._debt, -BEHIND)
        self._let_go = ClockReading.now()


def emulated(assignment: Assignment, rank: int) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly, or waits instead."""
    factor = assignment.disturbance.slowness(rank)
    if assignment.waits and assignment.computes:
        return PredictedWaits(factor, assignment.computes[rank])
    return Waited(factor) if assignment.waits else slowed(factor)


def is_emulated() -> bool:
    """Whether this thread does."""
    return _mode() is not None


def _mode() -> Slowed | None:
    """What sets the pace of this thread."""
    return next((mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Slowed)), None)


def updated(step: Callable[[], Any]) -> None:
    """A step of the optimizer, or a wait that stands for it."""
    mode = _mode()
    if isinstance(mode, PredictedWaits):
        mode.update(step)
    else:
        step()


def slowed(factor: float) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly."""
    return Slowed(factor) if factor > 1 else nullcontext()
