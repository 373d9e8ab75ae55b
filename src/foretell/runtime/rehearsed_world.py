# pyright: basic
"""A world of ranks of which one is there: its collectives move nothing, and take as long as they are priced.

Torch's fake process group lets any number of ranks begin. Every collective comes by an operator of torch's dispatcher
at last, whoever asks for it (DistributedDataParallel, FSDP2, DTensor, a pipeline, somebody's script); these operators
get kernels of our own here. A message keeps the line of its group busy for its time: on a processor a thread that
waits, on a GPU a stream on which a kernel sleeps (`torch.cuda._sleep`). So what overlaps, and what waits, is real.

Others are taken to have what this rank has: its share stands in all places of an all-gather, its sum is its own. What
comes from one other rank is one, or a little more than nothing: numbers that nobody divides by in vain.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    Work,
    _create_work_from_future,  # pyright: ignore[reportAttributeAccessIssue]
)
from torch.futures import Future
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves

from foretell.runtime.assignment import Collective
from foretell.runtime.counting import KINDS, MESSAGES, given_of, group_of, payload_of
from foretell.runtime.sleeping import sleep

SMALL = 2.0**-10
"""What comes of floats from a rank that is not there."""


class Asked(NamedTuple):
    """A collective that this rank takes part in."""

    kind: str
    ranks: tuple[int, ...]  # of the world, in order
    payload: int  # bytes that this rank gives
    peer: int = -1  # of a message: the rank of the world that it goes to, or comes from


Price = Callable[[Asked], float]
"""Seconds of a collective."""


def at_once(asked: Asked) -> float:
    return 0.0


class Line(Protocol):
    """What carries the messages of a group one after the other."""

    def do(self, seconds: float, fill: Callable[[], None], result: Any) -> Work:
        """A message that begins now, or when the one before has ended."""
        ...

    def begin(self, arrivals: Sequence[float]) -> None:
        """A step begins; others send so many seconds later."""
        ...

    def receive(self, turn: int, fill: Callable[[], None]) -> Work:
        """What was sent as number so and so of this step."""
        ...


class HostLine:
    """A thread that waits."""

    def __init__(self, device: torch.device) -> None:
        self._tasks: queue.SimpleQueue[tuple[float, float, Callable[[], None], Future, Any]] = queue.SimpleQueue()
        self._moments: list[float] = []
        threading.Thread(target=self._work, name="rehearsed", daemon=True).start()

    def do(self, seconds: float, fill: Callable[[], None], result: Any) -> Work:
        return self._put(time.perf_counter(), seconds, fill, result)

    def begin(self, arrivals: Sequence[float]) -> None:
        now = time.perf_counter()
        self._moments = [now + one for one in arrivals]

    def receive(self, turn: int, fill: Callable[[], None]) -> Work:
        return self._put(self._moments[turn] if turn < len(self._moments) else 0.0, 0.0, fill, None)

    def _put(self, earliest: float, seconds: float, fill: Callable[[], None], result: Any) -> Work:
        done: Future = Future()
        self._tasks.put((earliest, seconds, fill, done, result))
        return _create_work_from_future(done)

    def _work(self) -> None:
        free = 0.0
        while True:
            earliest, seconds, fill, done, result = self._tasks.get()
            free = max(free, earliest) + seconds
            try:
                fill()
            except Exception as problem:  # which whoever waits for the message would not hear of
                _PROBLEMS.append(problem)
            time.sleep(max(0.0, free - time.perf_counter()))
            done.set_result(result)
            del fill, done, result  # whoever asked lets go of it last


_PROBLEMS: list[Exception] = []
"""What went wrong in threads."""


class DeviceLine:
    """A stream of a GPU on which kernels sleep. What is made on it is waited for by the stream that waits, not by the
    host, as with NCCL."""

    def __init__(self, device: torch.device) -> None:
        self._device = torch.device(device.type, torch.cuda.current_device() if device.index is None else device.index)
        self._stream, self._filling = torch.cuda.Stream(self._device), torch.cuda.Stream(self._device)
        self._mark = torch.zeros(1, device=self._device)  # torch's futures wait for the devices of what they hold
        self._arrived: list[Any] = []  # events

    def do(self, seconds: float, fill: Callable[[], None], result: Any) -> Work:
        for stream in (self._stream, self._filling):
            stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._filling):
            fill()
        with torch.cuda.stream(self._stream):
            sleep(seconds, self._device)
            self._stream.wait_stream(self._filling)  # numbers come within the time of their message
            return self._done(result)

    def begin(self, arrivals: Sequence[float]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._arrived, before = [], 0.0
        with torch.cuda.stream(self._stream):
            for moment in arrivals:
                sleep(moment - before, self._device)
                before = max(before, moment)
                self._arrived.append(self._stream.record_event())

    def receive(self, turn: int, fill: Callable[[], None]) -> Work:
        side = torch.cuda.Stream(self._device)  # of a pool: the line itself sleeps towards later ones
        side.wait_stream(torch.cuda.current_stream(self._device))
        if turn < len(self._arrived):
            side.wait_event(self._arrived[turn])
        with torch.cuda.stream(side):
            fill()
            return self._done(None)

    def _done(self, result: Any) -> Work:
        done: Future = Future(devices=[self._device])
        done.set_result(result if result is not None else [self._mark])
        return _create_work_from_future(done)


LINES: dict[str, Callable[[torch.device], Line]] = {"cpu": HostLine, "cuda": DeviceLine}

ALONE = ("allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_")
ALONE += ("allgather_", "reduce_scatter_", "alltoall_", "scatter_")
"""Operators that give back what they made beside the work."""

OPERATORS = (*ALONE, "allreduce_coalesced_", "allgather_coalesced_", "allgather_into_tensor_coalesced_")
OPERATORS += ("reduce_scatter_tensor_coalesced_", "alltoall_base_", "reduce_", "gather_", "send", "recv_")
OPERATORS += ("recv_any_source_", "barrier")


class RehearsedWorld:
    """The kernels, as long as this process lives, and what was asked of them."""

    def __init__(self, price: Price = at_once, arrivals: Mapping[int, Sequence[float]] | None = None) -> None:
        self.seen: Counter[Asked] = Counter()
        self.spoken: set[tuple[int, ...]] = set()  # ranks whose collectives took time
        self.silent: frozenset[tuple[int, ...]] = frozenset()  # ranks whose collectives take none for now
        self._price = price
        self._copy: Any = None  # that gloo would have
        self._arrivals = dict(arrivals or {})  # by the rank that sends, in seconds from the beginning of a step
        self._lines: dict[Any, Line] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}  # of each group by its name
        self._received: Counter[int] = Counter()  # messages of this step, by the rank that sends
        self._before: Counter[int] = Counter()  # those of the step before
        self._library = torch.library.Library("c10d", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced is what is wanted
            for name in OPERATORS:
                for device in ("CPU", "CUDA"):
                    self._library.impl(name, functools.partial(self._asked, name), device)

    def enter(self) -> RehearsedWorld:
        """Be the world of this process."""
        _HERE.append(self)
        return self

    def begin(self, device: torch.device) -> None:
        """A step begins: others are as far as they are predicted to be from here on."""
        self._before, self._received = self._received, Counter()
        for peer, moments in self._arrivals.items():
            self._line(("receive", peer), device).begin(moments)

    def let_go(self) -> None:
        self._copy = None

    def found(self) -> list[Collective]:
        """What was asked for until now, alike ones together."""
        rows: Counter[tuple[str, int, int]] = Counter()
        for asked, count in self.seen.items():
            rows[asked.kind, len(asked.ranks), asked.payload] += count
        return sorted(Collective(kind, (), ranks, payload, count) for (kind, ranks, payload), count in rows.items())

    def _asked(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if _PROBLEMS:
            raise _PROBLEMS[0]
        group = group_of(args)
        ranks = self._ranks_of(group)
        tensors = [one for one in tree_leaves(args[:2]) if isinstance(one, torch.Tensor)]
        device = tensors[0].device
        made = args[0] if name in ALONE else None
        fill = functools.partial(_fill, name, args, ranks.index(dist.get_rank()))
        if name == "barrier":
            return _over(None)
        kind = KINDS.get(name, name.strip("_").replace("_", "-"))
        peer = ranks[args[2]] if kind in MESSAGES and isinstance(args[2], int) and name != "recv_any_source_" else -1
        asked = Asked(kind, ranks, payload_of(given_of(name, args)), peer)
        self.seen[asked] += 1
        # what DDP reads of a sum, and what is sent, which lives as long as its work
        seconds, result = self._seconds(asked), tensors if name in ("allreduce_", "send") else None
        self._copy = self._copied(name, tensors)
        if kind == "receive":
            work = self._receive(peer, device, fill)
        elif seconds:
            key = (group.group_name, "send", peer) if kind == "send" else group.group_name
            work = self._line(key, device).do(seconds, fill, result).boxed()
        else:
            fill()
            work = _over(result)
        return work if made is None else (made, work)

    def _ranks_of(self, group: dist.ProcessGroup) -> tuple[int, ...]:
        """Listed once: there may be a million."""
        name = group.group_name
        if name not in self._ranks:
            self._ranks[name] = tuple(dist.get_process_group_ranks(group))
        return self._ranks[name]

    def _seconds(self, asked: Asked) -> float:
        seconds = self._price(asked)
        if not seconds or asked.kind in MESSAGES:
            return seconds
        self.spoken.add(asked.ranks)
        return 0.0 if asked.ranks in self.silent else seconds

    def _copied(self, name: str, tensors: list[torch.Tensor]) -> Any:
        """Memory that gloo takes itself between processors: it gathers into a copy of the whole, and sums a copy of
        what is summed in shares, which lives until the next message of a step that is counted (torch 2.13)."""
        if tensors[0].device.type != "cpu":
            return None
        if name == "_allgather_base_":
            torch.empty_like(tensors[0])
        if name in ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
            return [torch.empty_like(one) for one in tensors[len(tensors) // 2 :]]
        return None

    def _receive(self, peer: int, device: torch.device, fill: Callable[[], None]) -> Any:
        """A message of another rank, when it is predicted to come; a step is learnt from the one before it how many
        messages a pass sends."""
        moments = self._arrivals.get(peer)
        if not moments:
            fill()
            return _over(None)
        each = max(1, self._before[peer] // len(moments))
        turn = self._received[peer] // each
        self._received[peer] += 1
        return self._line(("receive", peer), device).receive(turn, fill).boxed()

    def _line(self, key: Any, device: torch.device) -> Line:
        if key not in self._lines:
            self._lines[key] = LINES[device.type](device)
        return self._lines[key]


_HERE: list[RehearsedWorld] = []
"""The world of this process, if the others are not there."""


def is_rehearsed() -> bool:
    """Whether this rank is alone."""
    return bool(_HERE)


def let_go() -> None:
    """Drop what messages left in memory: between two steps there is nothing of them."""
    for world in _HERE:
        world.let_go()


def begin_step(device: torch.device) -> None:
    """A step of this rank begins, wherever the others are."""
    for world in _HERE:
        world.begin(device)


def _over(result: Any) -> Any:
    """A message that is over."""
    done: Future = Future()
    done.set_result(result)
    return _create_work_from_future(done).boxed()


def _fill(name: str, args: Any, at: int) -> None:
    """Put numbers where those of other ranks would be. `at` is this rank's place in the group."""
    with torch.no_grad():
        if name in ("_allgather_base_", "allgather_into_tensor_coalesced_"):
            for made, given in _pairs(args):
                shares, own = made.view(-1, given.numel()), given.reshape(1, -1)
                shares[:at].copy_(own.expand_as(shares[:at]))
                shares[at + 1 :].copy_(own.expand_as(shares[at + 1 :]))
                if shares[at].data_ptr() != own.data_ptr():  # FSDP2 gives what lies in its place already
                    shares[at].copy_(own[0])
        elif name in ("allgather_", "allgather_coalesced_", "gather_"):
            for made, given in zip(args[0], args[1], strict=False):
                for one in made:
                    one.copy_(given) if one.shape == given.shape else _little(one)
        elif name in ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
            for made, given in _pairs(args):
                made.view(-1).copy_(given.reshape(-1, made.numel())[at])
        elif name == "reduce_scatter_":
            for made, given in zip(args[0], args[1], strict=True):
                made.copy_(given[at])
        elif name in ("alltoall_base_", "alltoall_"):
            for made, given in _pairs(args):
                made.copy_(given) if made.shape == given.shape else _little(made)
        elif name in ("recv_", "recv_any_source_", "scatter_"):
            for one in args[0]:
                _little(one)


def _pairs(args: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(tree_leaves(args[0]), tree_leaves(args[1]), strict=True))


def _little(tensor: torch.Tensor) -> None:
    tensor.fill_(SMALL if tensor.is_floating_point() else 1)


def begun(rank: int, ranks: int) -> None:
    """Begin a world in which the others are not."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
