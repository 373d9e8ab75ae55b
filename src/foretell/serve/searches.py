"""Searches that run: each in a process of its own, watched, interrupted, and ended after a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from foretell.errors import BadInput
from foretell.serve.crew import WorkerProcess, problem
from foretell.serve.worker import Reply, WorkerTask

State = Literal["waiting", "running", "done", "failed"]

GRACE: Final = 20.0
"""Seconds that an interrupted search has to say what it found."""

UNATTENDED: Final = 30.0
"""Seconds after which a search that nobody asks about makes room for one that waits: its page is gone."""

KEPT: Final = 50
"""Searches that can be asked about; of more, the oldest that are over are forgotten."""


class SearchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search is, and what it found once it is over."""

    id: str
    state: State
    doing: str  # what it is at, in words
    share: float
    plans: int
    seconds: float
    stopped: bool  # somebody did, or its time was up
    answer: msgspec.Raw  # null, or as of the call `search`
    problem: msgspec.Raw  # null, or what is wrong


NOTHING: Final = msgspec.Raw(b"null")


@dataclass
class Running:
    """One search."""

    id: str
    task: WorkerTask
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    doing: str = ""
    share: float = 0.0
    plans: int = 0
    looked_at: float = field(default_factory=time.monotonic)  # when somebody last asked how far it is
    stopped: bool = False
    heard: bool = False  # it said how far it is
    interrupted: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    state: State = "waiting"
    reply: Reply | None = None
    worker: WorkerProcess | None = None
    runner: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")

    def told(self) -> SearchProgress:
        body = NOTHING if self.reply is None else msgspec.Raw(self.reply.body)
        return SearchProgress(
            id=self.id,
            state=self.state,
            doing=self.doing,
            share=self.share,
            plans=self.plans,
            seconds=(self.ended or time.monotonic()) - self.began,
            stopped=self.stopped,
            answer=body if self.state == "done" else NOTHING,
            problem=body if self.state == "failed" else NOTHING,
        )

    def saw(self, reply: Reply) -> None:
        """How far it is."""
        sofar = msgspec.json.decode(reply.body)
        self.doing, self.share, self.plans = sofar["doing"], float(sofar["share"]), int(sofar["plans"])
        self.heard = True
        if self.stopped:
            self.interrupt()

    def interrupt(self) -> None:
        """Once, and not before it searches: a second time would lose what it found."""
        if self.heard and not self.interrupted and self.worker is not None:
            self.interrupted = True
            self.worker.interrupt()


class Searches:
    """All of them."""

    def __init__(self, folder: Path, at_once: int, seconds: float, waiting: int = 10) -> None:
        self.folder, self.seconds, self.most_waiting = folder, seconds, waiting
        self.places = asyncio.Semaphore(at_once)
        self.all: dict[str, Running] = {}

    def start(self, task: WorkerTask) -> Running | None:
        """A search that runs, or waits for its turn; None: too many do."""
        if sum(not one.over for one in self.all.values()) >= self.most_waiting:
            return None
        over = [name for name, one in self.all.items() if one.over]
        for name in over[: max(0, len(self.all) + 1 - KEPT)]:
            del self.all[name]
        found = Running(secrets.token_hex(8), task)
        self.all[found.id] = found
        found.runner = asyncio.create_task(self._run(found))
        return found

    def get(self, name: str) -> Running:
        if name not in self.all:
            raise BadInput("no such search", where="id", fix="POST /api/searches starts one")
        found = self.all[name]
        found.looked_at = time.monotonic()
        if found.state == "waiting":
            self._make_room()
        return found

    def _make_room(self) -> None:
        """Stop those that run and that nobody asks about any more."""
        long_ago = time.monotonic() - UNATTENDED
        for one in self.all.values():
            if one.state == "running" and one.looked_at < long_ago:
                self.stop(one)

    async def _run(self, one: Running) -> None:
        try:
            async with self.places:
                one.reply = await self._found(one)
        finally:
            one.ended = time.monotonic()
            good = one.reply is not None and one.reply.kind == "answer"
            one.state = "done" if good else "failed"
            if good:
                one.doing, one.share = "done", 1.0

    async def _found(self, one: Running) -> Reply:
        if one.stopped:
            return problem(422, "it was stopped before it began")
        one.state = "running"
        one.worker = await WorkerProcess.start(self.folder)
        try:
            if not await one.worker.ready():
                return problem(500, "the process that was to search has ended")
            return await self._watched(one, one.worker)
        finally:
            await asyncio.shield(one.worker.end())

    async def _watched(self, one: Running, worker: WorkerProcess) -> Reply:
        """The answer; once it is stopped or its time is up, what is found until then."""
        asked = asyncio.create_task(worker.ask(one.task, one.saw))
        stopping = asyncio.create_task(one.stopping.wait())
        try:
            await asyncio.wait([asked, stopping], timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                self.stop(one)
                await asyncio.wait([asked], timeout=GRACE)
            return asked.result() if asked.done() else problem(422, "it was stopped before anything was found")
        finally:
            asked.cancel()
            stopping.cancel()

    def stop(self, one: Running) -> None:
        """Have it end with what it found so far."""
        if not one.over:
            one.stopped = True
            one.stopping.set()
            one.interrupt()

    async def end(self) -> None:
        for one in self.all.values():
            if one.runner is not None and not one.runner.done():
                one.runner.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await one.runner
