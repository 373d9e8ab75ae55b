"""Cells answered by processes of this machine, which get a cell as a line of JSON and give one back.

Plain processes rather than a pool: their threads are limited before anything is imported, a script that sweeps needs
no guard around its own top level, and one that dies (killed for its memory) costs one cell, not the sweep.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias

import msgspec

from foretell.forked_workers import cores
from foretell.processes import ChildProcess, ProcessEnded, python
from foretell.sweeping.answering import answered
from foretell.sweeping.cell import BROKEN, SweepCell, SweepRow, row

Done: TypeAlias = tuple[int, SweepRow]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def answers(cells: Sequence[SweepCell], jobs: int) -> Generator[Done]:
    """Each cell's place and answer, in the order in which they are done. 0 jobs: one for each core."""
    count = min(jobs or cores(), len(cells))
    if count <= 1:
        yield from ((place, answered(cell)) for place, cell in enumerate(cells))
        return
    workers = _Workers(cells, count, max(1, cores() // count))
    try:
        yield from workers.answers()
    finally:
        workers.stop()


class _Workers:
    """Processes, each with a thread here that hands it cells one by one."""

    def __init__(self, cells: Sequence[SweepCell], count: int, threads: int) -> None:
        self.cells, self.threads = cells, threads
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(len(cells)):
            self.waiting.put(place)
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.running: set[ChildProcess] = set()
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
            cell = self.cells[place]
            try:
                reply = msgspec.json.decode(worker.ask(msgspec.json.encode(cell) + b"\n"), type=SweepRow)
            except ProcessEnded as problem:  # and with it the answer is lost
                reply = row(cell, BROKEN, reason=f"the process that answered it ended with {problem.code}")
                self._end(worker)
                worker = self._started()
            self.done.put((place, reply))
        if worker is not None:
            self._end(worker)

    def _started(self) -> ChildProcess | None:
        """A new process that takes no more than its share of cores; none once all have been told to end."""
        with self.lock:
            if self.stopped:
                return None
            command = python("-m", "foretell.sweeping.worker")
            process = ChildProcess(command, dict.fromkeys(THREADS, str(self.threads)))
            self.running.add(process)
            return process

    def _end(self, process: ChildProcess) -> None:
        with self.lock:
            self.running.discard(process)
        process.end()
