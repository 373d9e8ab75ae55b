"""Cells answered by processes of this machine, which get a cell as a line of JSON and give one back.

Plain processes rather than a pool: their threads are limited before anything is imported, a script that sweeps needs
no guard around its own top level, and one that dies (killed for its memory) costs one cell, not the sweep.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from foretell.sweeping.answering import answered
from foretell.sweeping.cell import BROKEN, Cell, Row, row

Done: TypeAlias = tuple[int, Row]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def answers(cells: Sequence[Cell], jobs: int) -> Generator[Done]:
    """Each cell's place and answer, in the order in which they are done. 0 jobs: one for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(jobs or cores, len(cells))
    if count <= 1:
        yield from ((place, answered(cell)) for place, cell in enumerate(cells))
        return
    workers = _Workers(cells, count, max(1, cores // count))
    try:
        yield from workers.answers()
    finally:
        workers.stop()


class _Workers:
    """Processes, each with a thread here that hands it cells one by one."""

    def __init__(self, cells: Sequence[Cell], count: int, threads: int) -> None:
        self.cells, self.threads = cells, threads
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(len(cells)):
            self.waiting.put(place)
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.stopped = False
        for _ in range(count):
            threading.Thread(target=self._feed, daemon=True).start()

    def answers(self) -> Iterator[Done]:
        for _ in self.cells:
            yield self.done.get()

    def stop(self) -> None:
        """End them all, in the middle of a cell if need be."""
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.kill()

    def _feed(self) -> None:
        worker = self._started()
        while worker is not None:
            try:
                place = self.waiting.get_nowait()
            except queue.Empty:
                break
            reply = _asked(worker, self.cells[place])
            if reply is None:  # it died, and with it the answer
                code = worker.wait()
                self._ended(worker)
                reply = row(self.cells[place], BROKEN, reason=f"the process that answered it ended with {code}")
                worker = self._started()
            self.done.put((place, reply))
        if worker is not None:
            self._ended(worker)
            worker.wait()

    def _started(self) -> subprocess.Popen[bytes] | None:
        """A new process; none once all have been told to end."""
        with self.lock:
            if self.stopped:
                return None
            process = subprocess.Popen(
                [sys.executable, "-m", "foretell.sweeping.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(self.threads),
                start_new_session=True,  # Ctrl-C is for the one that asks
            )
            self.running.add(process)
            return process

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        with self.lock:
            self.running.discard(process)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was not written has nobody to read it
                assert pipe is not None
                pipe.close()


def _asked(worker: subprocess.Popen[bytes], cell: Cell) -> Row | None:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(msgspec.json.encode(cell) + b"\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except (OSError, ValueError):
        return None
    return msgspec.json.decode(line, type=Row) if line.endswith(b"\n") else None


def _environment(threads: int) -> dict[str, str]:
    """The environment of a process that takes no more than its share of cores, and finds this same package."""
    package = str(Path(__file__).parents[3])
    known = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([package, known] if known else [package])
    return {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": path}
