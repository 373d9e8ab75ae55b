"""Connections: who says nothing is hung up on, and nobody holds all of them.

uvicorn ends a connection that is idle after an answer. It waits for ever for a first request, for the rest of one that
has begun, and for a client that does not read its answer. Here each of these has an end; and where there are too many
connections, the one that was silent longest makes room for a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from foretell.serve.problem import Problem

AT_ONCE: Final = 512
"""Connections in all: half of the files that a process may have open on most machines."""

EACH: Final = 384
"""Of one address; all programs of one machine have the same one."""

SILENT_SECONDS: Final = 15.0
"""From the beginning of a connection, or the last answer, until a request's headers are whole; and without any byte
of an answer being read."""


class Connections:
    """All of them, and since when each is silent."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH) -> None:
        self.at_once, self.each = at_once, each
        self.open: dict[Connection, str] = {}  # with its address
        self.silent: dict[Connection, None] = {}  # whose turn it is to say something, the longest first

    def let_in(self, new: Connection, address: str) -> bool:
        """Whether there is room for a connection, or somebody silent who makes some."""
        own = [one for one, other in self.open.items() if other == address]
        if len(own) >= self.each and not self._hang_up(lambda one: self.open[one] == address):
            return False
        if len(self.open) >= self.at_once and not self._hang_up(lambda one: True):
            return False
        self.open[new] = address
        return True

    def _hang_up(self, may: Callable[[Connection], bool]) -> bool:
        """Whether there was somebody to hang up on; first come those who never asked anything."""
        idle = [one for one in self.silent if may(one) and not one.unread]
        longest = min(idle, key=lambda one: one.asked, default=None)
        if longest is not None:
            self.left(longest)
            longest.hang_up()
        return longest is not None

    def listens_to(self, one: Connection, silent: bool) -> None:
        """Note whether a connection has yet to say something."""
        if not silent:
            self.silent.pop(one, None)
        elif one in self.open:
            self.silent.setdefault(one)

    def left(self, one: Connection) -> None:
        self.open.pop(one, None)
        self.silent.pop(one, None)


class Connection(H11Protocol):
    """One of them: HTTP/1.1 by uvicorn, with ends."""

    all: Connections  # of the server, by `protocol`
    timer: asyncio.TimerHandle | None = None
    silent = False
    asked = False

    @property
    def unread(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if self.all.let_in(self, address):
            self._look()
        else:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self.all.left(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        self.silent = False  # it begins anew
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Have silence end: no request yet, or all that came are answered; the rest of a body may still drip in."""
        cycle: Any = self.cycle  # None before the first request
        silent, self.asked = cycle is None or cycle.response_complete, cycle is not None
        if silent != self.silent:
            self.silent = silent
            self.all.listens_to(self, silent)
            self._wait(SILENT_SECONDS if silent else None)

    def pause_writing(self) -> None:
        self._wait(SILENT_SECONDS)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._wait(SILENT_SECONDS if self.silent else None)
        super().resume_writing()

    def _wait(self, seconds: float | None) -> None:
        """So long for something to happen; None: as long as it takes to answer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds is None else self.loop.call_later(seconds, self._is_over, self.unread)

    def _is_over(self, unread: int) -> None:
        """The time is up; who reads a long answer slowly still does something."""
        if 0 < self.unread < unread:
            self._wait(SILENT_SECONDS)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """At once: what was not read by now will not be."""
        self.transport.abort()


FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 1\r\n\r\n"
    + msgspec.json.encode(Problem("too many connections at once", fix="ask again in a moment"))
)


def protocol() -> type[Any]:
    """The protocol of one server, whose connections know of each other."""
    return type("ServerConnection", (Connection,), {"all": Connections()})
