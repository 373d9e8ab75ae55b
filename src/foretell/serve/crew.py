"""The workers: started, asked, ended when they take too long, and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from foretell.processes import environment, python
from foretell.serve import uploads
from foretell.serve.problem import Problem
from foretell.serve.worker import WARM, Reply, WorkerTask, framed

Tell = Callable[[Reply], None]

LARGEST_FRAME: Final = 64 * 1024 * 1024

PATIENCE: Final = 60.0
"""Seconds that a question waits for a worker; on a machine that is busy, even to start one takes a while."""

READY_SECONDS: Final = 300.0
"""Seconds that a worker has to import what it needs."""

HURRY: Final = 3.0
"""Seconds that an answer may still take when nobody waits for it any more: about as long as a new worker's start."""

MOST_HELD: Final = 400_000_000
"""Bytes of memory above which a worker is replaced by a new one; the engine's own caches stay well below."""

TRIES: Final = 3
"""Workers that are started in the place of one before it is given up."""


def problem(status: int, what: str, fix: str = "") -> Reply:
    """A reply that no worker gave."""
    return Reply("problem", status, msgspec.json.encode(Problem(what, fix=fix)))


GONE: Final = problem(408, "nobody waits for the answer any more")


class WorkerProcess:
    """One process that answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, folder: Path, *words: str) -> WorkerProcess:
        """A worker that reads what was handed in from a folder, and works in an empty one.

        It has a session of its own: Ctrl-C in the terminal is for the server, which then ends its workers in order.
        """
        empty = folder / "empty"
        empty.mkdir(exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *python("-m", "foretell.serve.worker", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=empty,
            env=environment({uploads.FOLDER: str(folder)}),
            start_new_session=True,
            limit=LARGEST_FRAME,
        )
        return cls(process)

    async def ready(self) -> bool:
        """Wait until it has imported what it needs; False: it died."""
        try:
            return (await self._heard()).kind == "ready"
        except asyncio.IncompleteReadError:
            return False

    async def _heard(self) -> Reply:
        assert self.process.stdout is not None
        head = await self.process.stdout.readexactly(4)
        return msgspec.msgpack.decode(await self.process.stdout.readexactly(int.from_bytes(head, "big")), type=Reply)

    async def ask(self, task: WorkerTask, tell: Tell = lambda reply: None) -> Reply:
        """The answer; what comes before it is told."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(framed(task))
            await self.process.stdin.drain()
            while True:
                reply = await self._heard()
                if reply.last:
                    return reply
                tell(reply)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            return problem(500, "the process that was to answer has ended")

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def interrupt(self) -> None:
        """Have a search say what it found so far."""
        self._signal(signal.SIGINT)

    async def end(self) -> None:
        """End it at once, whatever it does."""
        self._signal(signal.SIGKILL)
        await self.process.wait()
        transport = getattr(self.process, "_transport", None)  # or its pipes are closed when the loop is gone
        if transport is not None:
            transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                self.process.send_signal(number)


class Crew:
    """Workers for calls that are quick."""

    def __init__(self, folder: Path, workers: int, seconds: float, waiting: int = 100) -> None:
        self.folder, self.count, self.seconds, self.most_waiting = folder, workers, seconds, waiting
        self.idle: asyncio.LifoQueue[WorkerProcess] = asyncio.LifoQueue()  # who just worked remembers most
        self.all: set[WorkerProcess] = set()
        self.busy: set[WorkerProcess] = set()
        self.outgrown: set[WorkerProcess] = set()  # whose successors are on their way
        self.hiring: set[asyncio.Task[Any]] = set()
        self.working: set[asyncio.Task[Reply]] = set()
        self.closed = False
        self.waiting = 0
        self.answered_at = -math.inf  # when one of them last did
        self.trouble = ""  # with the last one that did not become ready
        self.kept = AnswerCache()

    def start(self) -> None:
        """Hire them; they are idle when they are ready, and until then questions wait."""
        for _ in range(self.count):
            self._hire()

    def _hire(self, instead_of: WorkerProcess | None = None) -> None:
        if self.closed:
            return
        hiring = asyncio.create_task(self._hired() if instead_of is None else self._succeeded(instead_of))
        self.hiring.add(hiring)
        hiring.add_done_callback(self.hiring.discard)

    async def _succeeded(self, large: WorkerProcess) -> None:
        """Have another one take the place of one that has grown, which answers until then: nobody waits for it."""
        self.outgrown.add(large)
        ready = await self._hired()
        self.outgrown.discard(large)
        if ready and large in self.all:
            self.all.discard(large)
            if large not in self.busy:
                await large.end()

    async def _hired(self) -> bool:
        """One that does not become ready is replaced; after a few of them, questions are told why."""
        for _ in range(TRIES):
            try:
                worker = await WorkerProcess.start(self.folder, WARM)
            except OSError as found:
                self.trouble = f"no process can be started: {found.strerror}"
                continue
            self.all.add(worker)
            if await self._gets_ready(worker):
                self.idle.put_nowait(worker)
                return True
            await worker.end()
            self.all.discard(worker)
        return False

    async def _gets_ready(self, worker: WorkerProcess) -> bool:
        self.trouble = "a process ended before it could answer; the server's terminal says why"
        try:
            return await asyncio.wait_for(worker.ready(), READY_SECONDS)
        except TimeoutError:
            self.trouble = f"a process was not ready after {READY_SECONDS:g} seconds"
            return False

    async def answer(self, task: WorkerTask) -> Reply:
        """The answer of whoever is idle first; of the last minute's questions, the same again."""
        return self.kept.get(task) or await self.asked_anew(task)

    async def asked_anew(self, task: WorkerTask) -> Reply:
        """The answer of whoever is idle first.

        Who does not want it any more cancels this: then nobody is kept from other questions for long.
        """
        worker = await self._free()
        if worker is None:
            return self._turned_away()
        working = asyncio.create_task(self._asked(worker, task))
        self.working.add(working)
        working.add_done_callback(self.working.discard)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(HURRY, working.cancel)
            raise

    async def _free(self) -> WorkerProcess | None:
        """Whoever is idle first; None: too many wait already, or it takes too long."""
        if self.deserted or self.waiting >= self.most_waiting:
            return None
        self.waiting += 1
        try:
            return await asyncio.wait_for(self._alive(), PATIENCE)
        except TimeoutError:
            return None
        finally:
            self.waiting -= 1

    async def _alive(self) -> WorkerProcess:
        """The one that was idle last; those that ended while they were idle are passed over, and replaced."""
        while not (worker := await self.idle.get()).alive:
            self._replace(worker)
        return worker

    @property
    def deserted(self) -> bool:
        """Nobody works here, and nobody is coming."""
        return not self.all and not self.hiring

    def _turned_away(self) -> Reply:
        if not self.deserted:
            return problem(429, "too many questions at once", "ask again in a moment")
        self.start()  # what was in the way may be gone when somebody asks again
        return problem(503, f"nobody is there to answer: {self.trouble}", "ask again in a moment, or start it again")

    async def _asked(self, worker: WorkerProcess, task: WorkerTask) -> Reply:
        """A worker that is too slow, or dies, or whose answer nobody waits for, is replaced."""
        done = False
        self.busy.add(worker)
        try:
            reply = await asyncio.wait_for(worker.ask(task), self.seconds)
            done = worker.alive and reply.status != 500
            if reply.kind == "answer":
                self.answered_at = time.monotonic()
                self.kept.put(task, reply)
            if done and reply.held > MOST_HELD and worker in self.all and worker not in self.outgrown:
                self._hire(instead_of=worker)
            return reply
        except TimeoutError:
            what = f"the answer takes longer than {self.seconds:g} seconds"
            return problem(422, what, "a smaller question, or the command line, which takes its time")
        finally:
            self.busy.discard(worker)
            if done and worker in self.all:
                self.idle.put_nowait(worker)
            else:
                self._replace(worker)
                await asyncio.shield(worker.end())

    def _replace(self, worker: WorkerProcess) -> None:
        """Have another one come for one that is gone, unless it has come or is coming already."""
        if worker in self.all and worker not in self.outgrown:
            self._hire()
        self.all.discard(worker)

    async def end(self) -> None:
        """End all of them, those that are not ready yet too."""
        self.closed = True
        begun: list[asyncio.Task[Any]] = [*self.hiring, *self.working]
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self.all))
        self.all.clear()


class AnswerCache:
    """Answers of the last minute: sliders go back and forth, and several people look at one link."""

    SECONDS: Final = 60.0
    BYTES: Final = 32 * 1024 * 1024

    def __init__(self) -> None:
        self.replies: OrderedDict[WorkerTask, tuple[float, Reply]] = OrderedDict()
        self.bytes = 0

    def get(self, task: WorkerTask) -> Reply | None:
        found = self.replies.get(task)
        return found[1] if found and time.monotonic() - found[0] < self.SECONDS else None

    def put(self, task: WorkerTask, reply: Reply) -> None:
        self._drop(task)
        self.replies[task] = time.monotonic(), reply
        self.bytes += len(reply.body)
        while self.bytes > self.BYTES:
            self._drop(next(iter(self.replies)))

    def _drop(self, task: WorkerTask) -> None:
        found = self.replies.pop(task, None)
        if found is not None:
            self.bytes -= len(found[1].body)
