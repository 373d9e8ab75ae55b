"""Connections that say nothing, half of something, or do not listen: hung up on, and never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from foretell.serve import connections
from foretell.serve.connections import Connections, protocol
from serve_client import PATIENT

LONG = 10 * PATIENT
HELLO = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Line(NamedTuple):
    """A client's end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def says(self, text: bytes) -> None:
        self.writer.write(text)
        await self.writer.drain()

    def pauses(self) -> None:
        transport: Any = self.writer.transport
        transport.pause_reading()

    async def answered(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\nhello"), PATIENT)

    async def hung_up(self) -> bool:
        """Whether the server ends it; what it says before is left aside."""
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(self.reader.read(), PATIENT)
        return True


class Listening:
    """A server of one protocol, whose answers can be held back."""

    def __init__(self, size: int = 5) -> None:
        self.go, self.asked = asyncio.Event(), asyncio.Semaphore(0)
        self.go.set()
        self.size = size

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.release()
        await self.go.wait()
        headers = [(b"content-length", str(self.size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello".ljust(self.size)})

    @contextlib.asynccontextmanager
    async def listens(self, limits: Connections | None = None) -> AsyncIterator[Callable[[], Awaitable[Line]]]:
        config, kind, state = Config(self.app, log_config=None, ws="none", interface="asgi3"), protocol(), ServerState()
        kind.all = limits or kind.all
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
        lines: list[Line] = []

        async def connects() -> Line:
            lines.append(Line(*await asyncio.open_connection(*server.sockets[0].getsockname())))
            return lines[-1]

        try:
            yield connects
        finally:
            self.go.set()
            server.close()
            for line in lines:
                line.writer.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await work()

    asyncio.run(all_of_it())


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc"], ids=["nothing", "half of a header"])
def test_who_does_not_ask_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, said: bytes):
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)

    async def work() -> None:
        async with Listening().listens() as connects:
            line = await connects()
            with contextlib.suppress(ConnectionError):
                await line.says(said)
            assert await line.hung_up()

    run(work)


@pytest.mark.parametrize("after", [b"", b"GET / HT"], ids=["nothing", "half of another"])
def test_after_an_answer_too(monkeypatch: pytest.MonkeyPatch, after: bytes):
    """The body of what was answered may still be on its way: that is no reason to wait for ever."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", LONG)

    async def work() -> None:
        async with Listening().listens() as connects:
            line = await connects()
            await line.says(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n" if not after else HELLO)
            monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
            await line.answered()
            with contextlib.suppress(ConnectionError):
                await line.says(after)
            assert await line.hung_up()

    run(work)


def test_who_is_being_answered_is_not_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "SILENT_SECONDS", LONG)

    async def work() -> None:
        listening = Listening()
        listening.go.clear()
        async with listening.listens() as connects:
            line = await connects()
            await line.says(HELLO)
            await asyncio.wait_for(listening.asked.acquire(), PATIENT)
            monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
            await asyncio.sleep(0)
            listening.go.set()
            assert b" 200 " in await line.answered()

    run(work)


def test_who_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    """More than the buffers of both ends hold, and nobody who takes it."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", LONG)

    async def work() -> None:
        listening, every = Listening(size=64 << 20), Connections()
        listening.go.clear()
        async with listening.listens(every) as connects:
            line = await connects()
            line.pauses()
            await line.says(HELLO)
            await asyncio.wait_for(listening.asked.acquire(), PATIENT)
            monkeypatch.setattr(connections, "SILENT_SECONDS", 0.0)
            listening.go.set()
            async with asyncio.timeout(PATIENT):
                while every.open:
                    await asyncio.sleep(0)

    run(work)


def test_the_silent_make_room_for_those_who_ask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "SILENT_SECONDS", LONG)

    async def work() -> None:
        async with Listening().listens(Connections(at_once=6, each=4)) as connects:
            known = await connects()
            await known.says(HELLO)
            await known.answered()
            silent = [await connects() for _ in range(3)]
            new = await connects()
            await new.says(HELLO)
            assert b" 200 " in await new.answered()
            assert await silent[0].hung_up()
            await known.says(HELLO)  # who asked before stays as long as there are others
            assert b" 200 " in await known.answered()

    run(work)


def test_one_address_cannot_take_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "SILENT_SECONDS", LONG)

    async def work() -> None:
        listening = Listening()
        listening.go.clear()
        async with listening.listens(Connections(at_once=6, each=2)) as connects:
            for _ in range(2):
                line = await connects()
                await line.says(HELLO)
                await asyncio.wait_for(listening.asked.acquire(), PATIENT)
            third = await connects()
            told = await asyncio.wait_for(third.reader.read(), PATIENT)
            assert b" 503 " in told and b"too many connections" in told

    run(work)
