"""How far a long command is: a line that changes on a terminal, a line now and then where a log is written."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from foretell.cli.table import fit as shortened
from foretell.units import show_seconds as told

if TYPE_CHECKING:
    from foretell.oracle.search import FoundSoFar
    from foretell.oracle.space import Space


PATIENCE = 0.2
"""Seconds between two lines on a terminal."""

PATIENCE_OF_LOGS = 10.0
"""Seconds between two lines in a log; what takes less than that leaves none."""


class Progress:
    """Says on standard error how far a command is, not more often than somebody wants to read it."""

    def __init__(self, verb: str = "") -> None:
        self.verb = verb
        self.screen = sys.stderr.isatty()
        self.silent = os.environ.get("FORETELL_PROGRESS") == "none"
        self.start = self.last = time.monotonic()
        self.width = 0

    @property
    def due(self) -> bool:
        """Whether it is time for another line."""
        return not self.silent and time.monotonic() - self.last >= (PATIENCE if self.screen else PATIENCE_OF_LOGS)

    def say(self, what: str, share: float, more: str, before: str = ",") -> None:
        """A line about a share that is done. What is left is told from how long that took."""
        self.last = time.monotonic()
        bar = f"[{'#' * round(20 * share):<20}] {share:4.0%}" if self.screen else f"{share:.0%}"
        self._write(f"{what} {bar}, {more}{_left(self.last - self.start, share, before)}")

    def of(self, space: Space) -> Any:
        """Watches the search of a space."""
        self.start = time.monotonic()
        meshes: list[int] = []  # counted when they are first asked for

        def watch(now: FoundSoFar) -> None:
            if now.compiling and not self.silent:
                self._write("compiling loops over plans, once on this machine: up to a minute")
            if now.compiling or not self.due:
                return
            if not meshes:
                meshes.append(max(1, space.mesh_count))
            share = min(1.0, space.looked / meshes[0])
            best = f", {told(now.fastest)}, at least {told(now.least)}" if now.fastest < float("inf") else ""
            stop = ", Ctrl-C: best so far" if self.screen else ""
            self.say(shortened(space.cluster.text, 28), share, f"{now.plans:,} plans{best}{stop}")

        return watch

    def cells(self, done: int, kept: int, total: int) -> None:
        """How many cells of a sweep are done; those kept from before took no time."""
        if done == kept:
            self.start = time.monotonic()
        if self.due:
            share = (done - kept) / max(1, total - kept)
            self.say("sweep", share, f"{done:,} of {total:,} cells" + (f" ({kept:,} from before)" if kept else ""))

    def rows(self, done: int, kept: int, total: int, now: str) -> None:
        """How many rows of a comparison are done, and what runs now."""
        if done == kept:
            self.start = time.monotonic()
        if self.due or self.screen:
            self.say("bench", (done - kept) / max(1, total - kept), f"{done:,} of {total:,} rows, {now}")

    def runs(self, now: str, share: float) -> None:
        """Which run of a simulation is under way. What is left is a guess: runs end where they reach the target."""
        if self.due:
            self.say(self.verb, share, now, ", about")

    def waits(self, what: str, seconds: float) -> None:
        """Since when something is waited for of which nobody knows how long it takes; without words: it is there."""
        if not what:
            self.end()
        elif self.due:
            self.last = time.monotonic()
            self._write(f"{what}, {seconds:.0f} s")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *problem: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave no trace of it on a terminal."""
        if self.width:
            self._write("")
            print("", end="\r", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if not self.screen:
            print(text, file=sys.stderr, flush=True)
            return
        print(f"\r{text:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)


def _left(taken: float, share: float, before: str) -> str:
    """The time that is left, once enough is done to tell."""
    if share < 0.02 or taken < 1:
        return ""
    seconds = taken * (1 - share) / share
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{before} {seconds / size:.0f} {unit} left"
    return f"{before} {seconds:.0f} s left"
