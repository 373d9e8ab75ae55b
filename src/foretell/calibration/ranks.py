# pyright: basic
"""Several processes of this machine at once: a group of ranks, or cores that keep each other busy."""

from __future__ import annotations

import functools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from foretell.errors import ForetellError
from foretell.processes import RankFailed, each
from foretell.scratch import scratch

PATIENCE: Final = 300.0
"""Seconds after which ranks that do not answer are ended."""


def together(work: Callable[..., Any], ranks: int, *arguments: Any, backend: str = "gloo", fork: bool = True) -> Any:
    """Run `work(rank, ranks, *arguments)` on every rank of a process group; what rank 0 returns.

    Not by a fork where `work` asks for accelerators: CUDA, which a backward pass of this process has looked for, does
    not answer in one.
    """
    with scratch("ranks") as folder:
        store = str(folder / "store")
        one = functools.partial(_rank, work=work, ranks=ranks, store=store, backend=backend, arguments=arguments)
        try:
            return each(one, ranks, PATIENCE, fork=fork and backend == "gloo")[0]
        except RankFailed as problem:
            raise ForetellError(f"ranks of this machine cannot work together: {problem}") from None


def _rank(rank: int, work: Callable[..., Any], ranks: int, store: str, backend: str, arguments: tuple[Any, ...]) -> Any:
    """One process: join the group and work; what rank 0 returns."""
    warnings.simplefilter("ignore")  # names of collectives change from release to release
    if backend == "gloo":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a rank is a core, and FSDP2 in a fork stumbles over a GPU
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        store=dist.FileStore(store, ranks),  # pyright: ignore[reportPrivateImportUsage]
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE),
    )
    found = work(rank, ranks, *arguments)
    dist.barrier()
    return found if rank == 0 else None


# what probes of several ranks have in common


def groups(count: int) -> Iterator[int]:
    """Two ranks, four ... and all of a machine: more ranks than cores would measure the scheduler."""
    ranks = 2
    while ranks < count:
        yield ranks
        ranks *= 2
    if count > 1:
        yield count


def repeated(call: Callable[[], Any], times: int, settle: Callable[[], Any] = lambda: None) -> list[float]:
    """Seconds of each call on this rank until the device has settled, all ranks starting together."""
    call()
    found: list[float] = []
    for _ in range(times):
        dist.barrier()
        start = time.perf_counter()
        call()
        settle()
        found.append(time.perf_counter() - start)
    return found


def own_seconds(call: Callable[[], Any]) -> float:
    """Seconds of this thread: other programs of a shared processor take none of them."""
    start = time.thread_time()
    call()
    return time.thread_time() - start
