# pyright: basic
"""The collectives that really ran: every one that torch starts while a step is watched, whoever asked for it.

DistributedDataParallel's buckets, FSDP2, DTensor and the pipeline all come by torch's dispatcher at last. What
is missing in the tables below stops the count of a plan of ours: a number that leaves something out would be worse
than none. Engines of others call more than ours do, and what they call is counted under torch's own name for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from foretell.errors import BadInput
from foretell.runtime.assignment import Collective
from foretell.runtime.clock import BETWEEN
from foretell.runtime.mesh import TorchMesh
from foretell.runtime.quiescence import wait_for_other_threads

KINDS = {
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "all_reduce_coalesced": "all-reduce",
    "allreduce_": "all-reduce",
    "allreduce_coalesced_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_out": "all-gather",
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_out": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor_coalesced_": "reduce-scatter",
    "allgather_into_tensor_coalesced_": "all-gather",
    "reduce_": "reduce",
    "all_to_all_single": "all-to-all",
    "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "receive",
    "recv_any_source_": "receive",
}
"""Torch's operators by what they do."""

MESSAGES = ("send", "receive")
"""From one rank to one other, whoever else is in the group."""

OUTPUT_FIRST = ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_")
GIVEN_SECOND = (
    "allgather_",
    "allgather_coalesced_",
    "alltoall_",
    "gather_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "allgather_into_tensor_coalesced_",
)
SILENT = ("wait_tensor", "barrier", "_wrap_tensor_autograd")
NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")


class Counting(TorchDispatchMode):
    """Counts what this rank takes part in, by kind, axes and payload, in the phase that is set."""

    def __init__(self, mesh: TorchMesh, foreign: bool = False, fullest: bool = False) -> None:
        super().__init__()
        self._foreign, self._fullest = foreign, fullest
        self.phase = BETWEEN
        self._axes = mesh.groups()
        # What a collective reads and makes is held until gloo's threads rest: else one of them would now and then be
        # the last to let go of it, and the notes that are taken of this thread's memory would miss that.
        self._last: tuple[Any, Any] | None = None
        self._seen: Counter[tuple[str, tuple[str, ...], int, int, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local tensors come by next
        name = func.overloadpacket.__name__
        self._let_go()
        if func.namespace in NAMESPACES and name not in SILENT:
            self._count(name, args)
        result = func(*args, **(kwargs or {}))
        if func.namespace in NAMESPACES:
            if self._last is not None:  # it travels still
                wait_for_other_threads()
            self._last = args, result
        return result

    def _let_go(self) -> None:
        """Drop what has travelled."""
        if self._last is not None and _done(self._last):
            wait_for_other_threads()
            self._last = None

    def _count(self, name: str, args: Any) -> None:
        if name not in KINDS and not self._foreign:
            raise BadInput(f"torch's {name} is no collective that is counted", where="the step that is watched")
        ranks = frozenset(dist.get_process_group_ranks(group_of(args)))
        axes = self._along(ranks)
        kind = KINDS.get(name, name.strip("_").replace("_", "-"))
        among = 2 if kind in MESSAGES else len(ranks)
        payload = payload_of(given_of(name, args))
        if self._fullest and name == "alltoall_base_":  # more comes to it than it gives, or goes back from it
            payload = max(payload, payload_of(args[0]))
        self._seen[kind, axes, among, payload, self.phase] += 1

    def _along(self, ranks: frozenset[int]) -> tuple[str, ...]:
        """The axes of a group; of one that has some ranks of an axis only, that axis."""
        if ranks in self._axes:
            return self._axes[ranks]
        around = min((known for known in self._axes if ranks <= known), key=len, default=None)
        return self._axes[around] if around is not None else ()  # one rank alone has no axis

    def found(self) -> list[Collective]:
        """What was counted, alike ones together."""
        rows = (
            Collective(kind, axes, ranks, payload, count, phase)
            for (kind, axes, ranks, payload, phase), count in self._seen.items()
        )
        return sorted(rows)


def _done(held: tuple[Any, Any]) -> bool:
    """Whether a collective is over, as far as it tells. NCCL gives nothing to wait for where nobody will."""
    boxes = [one for one in tree_leaves(held) if isinstance(one, torch.ScriptObject) and _is_work(one)]
    works: list[dist.Work | None] = [dist.Work.unbox(one) for one in boxes]
    return all(work is None or work.is_completed() for work in works)


def _is_work(one: torch.ScriptObject) -> bool:
    return one._type().name() == "Work"  # pyright: ignore[reportAttributeAccessIssue]


def group_of(args: Any) -> dist.ProcessGroup:
    """The process group among an operator's arguments: itself, or its name."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return dist.ProcessGroup.unbox(arg)
    name = next(arg for arg in reversed(args) if isinstance(arg, str))
    return _resolve_process_group(name)  # pyright: ignore[reportArgumentType]


def given_of(name: str, args: Any) -> Any:
    """What a rank gives to an operator, among its arguments."""
    return args[1] if name in (*OUTPUT_FIRST, *GIVEN_SECOND) else args[0]


def payload_of(tensors: Any) -> int:
    """Bytes of tensors, however deep they lie in lists."""
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    assert isinstance(tensors, Iterable)
    return sum(payload_of(tensor) for tensor in tensors)
