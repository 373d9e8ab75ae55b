"""The server with its socket: where it listens, and until when."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NamedTuple

import uvicorn

from foretell.errors import BadInput
from foretell.scratch import scratch
from foretell.serve.app import FILES, ServerLimits, application
from foretell.serve.connections import SILENT_SECONDS, protocol
from foretell.serve.guards import LOCAL, Guarded

BACKLOG: Final = 512

EVERYBODY: Final = ("0.0.0.0", "::")
"""Addresses that are those of all networks, and no names."""


class ServerPlace(NamedTuple):
    """Where a server listens, what it is called, and what who asks has to bring."""

    host: str
    port: int
    names: tuple[str, ...]  # others than this machine's own
    token: str  # empty: none


def serve(place: ServerPlace, limits: ServerLimits, ready: Callable[[str], None]) -> None:
    """Listen until somebody interrupts. `ready` is told the address once there is one."""
    host, port, names, token = place
    with _listening(host, port) as listening, scratch("serve") as folder:
        own = listening.getsockname()[1]
        name = "localhost" if host in ("127.0.0.1", *EVERYBODY) else f"[{host}]" if ":" in host else host
        known = (*LOCAL, *names, name)
        app = Guarded(application(folder, limits), known, own, token, ("/", *FILES))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            http=protocol(),
            ws="none",
            timeout_keep_alive=int(SILENT_SECONDS),
            timeout_graceful_shutdown=2,
            lifespan="on",
        )
        server = uvicorn.Server(config)
        with _ending_in_order(server):  # before anybody knows the address, and may send a signal
            ready(f"http://{name}:{own}/")
            server.run(sockets=[listening])


@contextmanager
def _ending_in_order(server: uvicorn.Server) -> Generator[None]:
    """Have a signal end the server in order, whether uvicorn hears it yet or not, and then as whoever runs it wants."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        server.handle_exit(number, frame)

    known = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {one: signal.signal(one, end) for one in known if signal.getsignal(one) not in (signal.SIG_IGN, None)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if heard:
        signal.raise_signal(heard[0])


def _listening(host: str, port: int) -> socket.socket:
    """A socket of its own, so that whoever is told of the port finds it open."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(BACKLOG)
    except (OSError, OverflowError) as problem:
        found.close()
        why = getattr(problem, "strerror", None) or str(problem)
        foreign = isinstance(problem, socket.gaierror) or getattr(problem, "errno", None) == errno.EADDRNOTAVAIL
        where, fix = ("--host", "--host 127.0.0.1") if foreign else ("--port", "--port 0: any that is free")
        raise BadInput(f"cannot listen on {host}, port {port}: {why}", where=where, fix=fix) from None
    return found
