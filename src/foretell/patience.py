"""What takes long before an answer begins, told to whoever listens: the command line does, a server does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

_listeners: Final[list[Callable[[str, float], None]]] = []


def told_to(listener: Callable[[str, float], None]) -> None:
    """From now on this is called with what is waited for, and since how many seconds; at its end without words."""
    _listeners[:] = [listener]


@contextmanager
def waiting_for(what: str) -> Generator[Callable[[], None]]:
    """Inside, something is waited for; what is given says so, as often as one likes."""
    start = time.monotonic()

    def still() -> None:
        for listener in _listeners:
            listener(what, time.monotonic() - start)

    try:
        yield still
    finally:
        for listener in _listeners:
            listener("", time.monotonic() - start)
