"""A line that shows how far a search is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.oracle.space import Space

PATIENCE = 0.2
"""Seconds between two lines of progress."""


class Progress:
    """A line on the terminal while a search goes on; nothing where nobody looks."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.last = time.monotonic()
        self.width = 0

    def of(self, space: Space) -> Any:
        meshes = space.mesh_count if self.shown else 1

        def watch(plans: int) -> None:
            now = time.monotonic()
            if self.shown and now - self.last >= PATIENCE:
                self.last = now
                share = min(1.0, space.looked / max(1, meshes))
                bar = "#" * round(20 * share)
                self._write(f"{space.cluster.text} [{bar:<20}] {share:4.0%}, {plans:,} plans, Ctrl-C: best so far")

        return watch

    def end(self) -> None:
        """Leave no trace of it."""
        if self.width:
            self._write("")
            print("", end="\r", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        print(f"\r{text:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)
