"""What the verbs that measure have in common: they need torch, and say how far they are."""

from __future__ import annotations

import importlib.util
import os
import sys
import time

from foretell.cli.table import WIDTH, fit
from foretell.errors import BadInput, MissingExtra

PATIENCE = 0.2
"""Seconds between two lines of progress."""

NAME = 24
"""Letters of what is measured just now."""


def needs_torch(what: str, extra: str = "torch") -> None:
    """Refuse politely where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"{what} needs torch", fix=f"pip install 'foretell[{extra}]'")


def checked_threads(count: int) -> int:
    """Threads of a rank: at most the cores of this machine, which more of them would only fight for."""
    cores = os.cpu_count() or 1
    if not 0 <= count <= cores:
        raise BadInput(f"--threads {count}: this machine has {cores} cores", where="--threads", fix=f"1 to {cores}")
    return count


class StatusLine:
    """A line on the terminal that says how far it is; nothing where nobody looks."""

    def __init__(self) -> None:
        self.shown, self.began, self.last = sys.stderr.isatty(), time.monotonic(), 0.0

    def watch(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.shown or now - self.last < PATIENCE or not total:
            return
        self.last = now
        left = (now - self.began) / done * (total - done) if done else 0.0
        bar = "#" * round(20 * done / total)
        text = f"{fit(what, NAME):<{NAME}} [{bar:<20}] {done / total:4.0%}, about {left:.0f} s left"
        print(f"\r{text:<{WIDTH - 1}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave no trace of it."""
        if self.last:
            print(f"\r{'':<{WIDTH - 1}}\r", end="", file=sys.stderr, flush=True)
