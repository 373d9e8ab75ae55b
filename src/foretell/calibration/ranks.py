# pyright: basic
"""Several processes of this machine at once: a group of ranks, or cores that keep each other busy.

Processes are forked where that is safe (no torch is loaded again: 0.03 s instead of seconds), and leave without
Python's goodbye: gloo's threads abort about one exit in twelve.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from foretell.errors import ForetellError

PATIENCE: Final = 300.0
"""Seconds after which ranks that do not answer are ended."""


def together(work: Callable[..., Any], ranks: int, *arguments: Any, backend: str = "gloo", fork: bool = True) -> Any:
    """Run `work(rank, ranks, *arguments)` on every rank of a process group; what rank 0 returns.

    Not by a fork where `work` asks for accelerators: CUDA, which a backward pass of this process has looked for, does
    not answer in one.
    """
    with tempfile.TemporaryDirectory(prefix="foretell-") as folder:
        store = str(Path(folder) / "store")
        forked = fork and backend == "gloo" and sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if forked else "spawn")
        ours, theirs = context.Pipe(duplex=False)
        started = [
            context.Process(target=_rank, args=(work, rank, ranks, store, backend, theirs, arguments), daemon=True)
            for rank in range(ranks)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks beside threads
            for process in started:
                process.start()
        theirs.close()
        try:
            return _answer(ours)
        finally:
            for process in started:
                process.join(5)
                if process.is_alive():
                    process.kill()


def _answer(ours: Connection) -> Any:
    if not ours.poll(PATIENCE):
        raise ForetellError(f"ranks of this machine did not answer within {PATIENCE:.0f} s")
    try:
        fine, found = ours.recv()
    except EOFError:
        raise ForetellError("a rank of this machine ended without a word") from None
    if not fine:
        raise ForetellError(f"ranks of this machine cannot talk to each other: {found}")
    return found


def _rank(
    work: Callable[..., Any],
    rank: int,
    ranks: int,
    store: str,
    backend: str,
    told: Connection,
    arguments: tuple[Any, ...],
) -> None:
    """One process: join the group, work, tell, and leave at once."""
    warnings.simplefilter("ignore")  # names of collectives change from release to release
    try:
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
        if rank == 0:
            told.send((True, found))
    except BaseException as problem:
        told.send((False, f"{type(problem).__name__}: {problem}"))
        if os.environ.get("FORETELL_DEBUG"):
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


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
