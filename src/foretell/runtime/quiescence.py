"""Whether the other threads of this process are at rest.

Gloo's threads wake up whoever waits for a collective, and let go of its tensors a moment later: on a busy machine long
after, when they have a core again. Whoever counts bytes waits until none of them wants one any more.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

LONGEST = 2.0
"""Seconds after which a thread that always runs is left alone."""

LOOK = 2e-4
"""Seconds between two looks; where threads cannot be seen, in all."""

TASKS = Path("/proc/self/task")


_TIRELESS: set[str] = set()
"""Threads that were waited for in vain."""


def wait_for_other_threads() -> None:
    """Return when every other thread of this process sleeps, but for those that never do."""
    until = time.monotonic() + LONGEST
    time.sleep(LOOK)
    running = _running()
    _TIRELESS.intersection_update(running)  # whoever sleeps by now was late, no more
    while running - _TIRELESS and time.monotonic() < until:
        time.sleep(LOOK)
        running = _running()
    _TIRELESS.update(running)


def _running() -> set[str]:
    own = str(threading.get_native_id())
    return {thread.name for thread in _threads() if thread.name != own and _state(thread) == "R"}


def _threads() -> list[Path]:
    return list(TASKS.iterdir()) if TASKS.is_dir() else []


def _state(thread: Path) -> str:
    """One letter of proc(5): R for a thread that runs, or would if a core were free."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""  # it has ended
