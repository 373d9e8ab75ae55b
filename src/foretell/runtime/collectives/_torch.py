# pyright: basic
"""Torch's collectives by an algorithm of our own: whoever asks for them, and whatever group they are in.

Every collective on tensors of the host comes by an operator of torch's dispatcher at last. These get another
kernel here; what it does not do (other types, sums of other kinds, uneven shares) it leaves to gloo's. A thread for
each group does the work, in order, so that a backward pass goes on beside it.
"""

from __future__ import annotations

import functools
import inspect
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    ReduceOp,
    Work,
    _create_work_from_future,  # pyright: ignore[reportAttributeAccessIssue]
)
from torch.futures import Future

from foretell.runtime import hosts
from foretell.runtime.collectives._choice import AlgorithmChoice
from foretell.runtime.collectives._lines import Lines, connected, listener
from foretell.runtime.collectives._schedule import Team

TYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32)
"""Elements that numpy can add."""


class HostCollective(NamedTuple):
    """A collective over tensors of the host; `finish` puts the result where it belongs."""

    kind: str
    source: torch.Tensor
    target: torch.Tensor
    finish: Callable[[], None]
    done: Future


class GroupThread:
    """The ranks of one group, and the thread that talks to them."""

    def __init__(self, group: dist.ProcessGroup, choice: AlgorithmChoice) -> None:
        self._rank, self._count, self._choice = dist.get_rank(group), dist.get_world_size(group), choice
        self._lines = _met(group)
        self._tasks: queue.SimpleQueue[HostCollective] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="collectives", daemon=True).start()

    def do(
        self, kind: str, source: torch.Tensor, target: torch.Tensor, finish: Callable[[], None], result: Any
    ) -> Work:
        done: Future = Future()
        self._tasks.put(HostCollective(kind, source, target, finish, done))
        return _create_work_from_future(done.then(lambda one: (one.value(), result)[1]))

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                team = Team.of(self._rank, self._count, task.source.numel())
                rounds = self._choice.rounds(task.kind, team)
                source = task.source.numpy()
                target = source if task.target is task.source else task.target.numpy()
                self._lines.perform(rounds, source, target)
                task.finish()
                task.done.set_result(None)
            except BaseException as problem:
                task.done.set_exception(problem)


def _met(group: dist.ProcessGroup) -> Lines:
    """Lines to the others of a group; they find each other by the store of the world."""
    store, name = dist.distributed_c10d._get_default_store(), group.group_name
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    own = listener(hosts.own_address())
    store.set(f"lines/{name}/{rank}", "{}:{}".format(*own.getsockname()[:2]))

    def where(peer: int) -> tuple[str, int]:
        address, _, port = store.get(f"lines/{name}/{peer}").decode().rpartition(":")
        return address, int(port)

    return connected(rank, range(count), own, where)


class InstalledKernels:
    """Kernels of our own for torch's collectives, as long as this process lives."""

    def __init__(self, choice: AlgorithmChoice) -> None:
        self._choice = choice
        self._of_group: dict[str, GroupThread] = {}
        self._asked = threading.local()
        self._library = torch.library.Library("c10d", "IMPL")
        kernels = {
            "allreduce_": self._all_reduce,
            "_allgather_base_": self._all_gather,
            "_reduce_scatter_base_": self._reduce_scatter,
            "broadcast_": self._broadcast,
            "alltoall_base_": self._all_to_all,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced is what is wanted
            for name, kernel in kernels.items():
                self._library.impl(name, kernel, "CPU")
        for name in ("all_reduce", "reduce_scatter_tensor"):
            self._note_operation(name)

    def _note_operation(self, name: str) -> None:
        """An operator's arguments do not say what is done with the elements; the function that is called does."""
        function = getattr(dist, name)
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noting(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            self._asked.operation = bound.arguments.get("op", ReduceOp.SUM)
            try:
                return function(*args, **kwargs)
            finally:
                self._asked.operation = ReduceOp.SUM

        setattr(dist, name, noting)
        setattr(dist.distributed_c10d, name, noting)

    @property
    def _operation(self) -> Any:
        return getattr(self._asked, "operation", ReduceOp.SUM)

    def _line(self, group: dist.ProcessGroup) -> GroupThread:
        name = group.group_name
        if name not in self._of_group:
            self._of_group[name] = GroupThread(group, self._choice)
        return self._of_group[name]

    def _ours(self, *tensors: torch.Tensor) -> bool:
        simple = all(one.dtype in TYPES and one.is_contiguous() for one in tensors)
        return simple and self._operation in (ReduceOp.SUM, ReduceOp.AVG)

    # a kernel each

    def _all_reduce(
        self,
        tensors: list[torch.Tensor],
        group: Any,
        operation: Any,
        sparse: Any,
        asynchronous: bool = True,
        wait: int = -1,
    ) -> Any:
        known = dist.ProcessGroup.unbox(group)
        if len(tensors) != 1 or not self._ours(*tensors):
            options = dist.AllreduceOptions()
            options.reduceOp = self._operation
            return tensors, _gloo(known).allreduce(tensors, options).boxed()
        flat = tensors[0].detach().view(-1)
        work = self._line(known).do("all-reduce", flat, flat, self._settled(flat, known), tensors)
        return tensors, work.boxed()

    def _all_gather(
        self, output: torch.Tensor, given: torch.Tensor, group: Any, asynchronous: bool = True, wait: int = -1
    ) -> Any:
        known = dist.ProcessGroup.unbox(group)
        if not self._ours(output, given):
            return output, _gloo(known)._allgather_base(output, given).boxed()
        flat, size, at = output.detach().view(-1), given.numel(), dist.get_rank(known)
        flat[at * size : (at + 1) * size] = given.detach().view(-1)
        work = self._line(known).do("all-gather", flat, flat, _nothing, [output])
        return output, work.boxed()

    def _reduce_scatter(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        group: Any,
        operation: Any,
        asynchronous: bool = True,
        wait: int = -1,
    ) -> Any:
        known = dist.ProcessGroup.unbox(group)
        if not self._ours(output, given):
            options = dist.ReduceScatterOptions()
            options.reduceOp = self._operation
            return output, _gloo(known)._reduce_scatter_base(output, given, options).boxed()
        flat, size, at = given.detach().view(-1).clone(), output.numel(), dist.get_rank(known)
        settled = self._settled(flat, known)

        def finish() -> None:
            settled()
            output.detach().view(-1).copy_(flat[at * size : (at + 1) * size])

        return output, self._line(known).do("reduce-scatter", flat, flat, finish, [output]).boxed()

    def _broadcast(
        self, tensors: list[torch.Tensor], group: Any, root: int, which: int, asynchronous: bool = True, wait: int = -1
    ) -> Any:
        known = dist.ProcessGroup.unbox(group)
        if len(tensors) != 1 or root != 0 or not self._ours(*tensors):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, which
            return tensors, _gloo(known).broadcast(tensors, options).boxed()
        flat = tensors[0].detach().view(-1)
        return tensors, self._line(known).do("broadcast", flat, flat, _nothing, tensors).boxed()

    def _all_to_all(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        group: Any,
        received: list[int],
        sent: list[int],
        asynchronous: bool = True,
        wait: int = -1,
    ) -> Any:
        known = dist.ProcessGroup.unbox(group)
        if received or sent or not self._ours(output, given):
            return _gloo(known).alltoall_base(output, given, received, sent, dist.AllToAllOptions()).boxed()
        source, target = given.detach().view(-1), output.detach().view(-1)
        size, at = source.numel() // dist.get_world_size(known), dist.get_rank(known)
        target[at * size : (at + 1) * size] = source[at * size : (at + 1) * size]
        return self._line(known).do("all-to-all", source, target, _nothing, [output]).boxed()

    def _settled(self, flat: torch.Tensor, group: dist.ProcessGroup) -> Callable[[], None]:
        """What is left to do with a sum: nothing, or the mean of it."""
        if self._operation != ReduceOp.AVG:
            return _nothing
        count = dist.get_world_size(group)

        def mean() -> None:
            flat.div_(count)

        return mean


def _nothing() -> None:
    """There is nothing left to do."""


def _gloo(group: dist.ProcessGroup) -> Any:
    return group._get_backend(torch.device("cpu"))
