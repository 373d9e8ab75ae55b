"""Signals that end a command: SIGTERM (queues, orchestrators, `timeout`) and SIGHUP (a terminal that closes) end it as
Ctrl-C does.

What is under way is wound up, what was saved is told, and the exit code is 128 and the signal's number, as shells,
Slurm and Kubernetes expect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT."""

AGAIN: Final = 4.0
"""Seconds after which a command that still goes on is interrupted once more, and then every second: SIGKILL follows
SIGTERM after 30 s with Slurm and Kubernetes, elsewhere after 10."""

_received: list[signal.Signals] = []


class SignalReceived(KeyboardInterrupt):
    """A signal ends the command. A kind of its own: of a plain KeyboardInterrupt that has passed through `exec` Python
    remembers, though it was caught, to end by SIGINT."""


class Stopped(KeyboardInterrupt):
    """A command that was ended: what it has saved, and how to go on."""

    def __init__(self, saved: str, fix: str = "") -> None:
        super().__init__(saved)
        self.saved, self.fix = saved, fix


@contextmanager
def telling(saved: Callable[[], tuple[str, str]]) -> Generator[None]:
    """Whoever interrupts this is told what was saved until then, and how to go on."""
    try:
        yield
    except Stopped:
        raise
    except KeyboardInterrupt:
        raise Stopped(*saved()) from None


@contextmanager
def stop_signals() -> Generator[None]:
    """Have signals that end a command end it like Ctrl-C; those that somebody ignores (nohup) stay ignored."""
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {one: signal.getsignal(one) for one in names if signal.getsignal(one) == signal.SIG_DFL}
    alarm = (signal.getsignal(signal.SIGALRM) or signal.SIG_DFL) if hasattr(signal, "setitimer") else None
    try:
        for one in before:
            signal.signal(one, _stop)
        yield
    finally:
        if _received and alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, alarm)
        for one, handler in before.items():
            signal.signal(one, handler)


def exit_code(code: int) -> int:
    """Of a command that was interrupted, one with the best answer so far too: that of the signal that did so."""
    return 128 + _received[0] if _received and code in (0, INTERRUPTED) else code


def told(stop: BaseException | None) -> dict[str, str]:
    """What is said of a command that was interrupted."""
    what = f"stopped by {_received[0].name}" if _received else "interrupted"
    return {"what": f"{what}: {stop.saved}", "fix": stop.fix} if isinstance(stop, Stopped) else {"what": what}


def _stop(number: int, frame: FrameType | None) -> None:
    _received.append(signal.Signals(number))
    if len(_received) > 1:  # the same wish: `timeout` sends it to the process, and to its group
        return
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _again)
        signal.setitimer(signal.ITIMER_REAL, AGAIN, 1.0)
    raise SignalReceived


def _again(number: int, frame: FrameType | None) -> None:
    raise SignalReceived
