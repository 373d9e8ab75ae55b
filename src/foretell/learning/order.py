"""In which order one side of a run took up what came to it, as whole numbers: with it a run can be played again.

A server writes down whose push, question or farewell it read; a worker, whose model or reply, and when its own gradient
was made. What a side does depends on nothing else, so runs with the same orders are the same run.
"""

from __future__ import annotations

from typing import Final

GRADIENT: Final = -1
"""A worker's own gradient."""


def pushed(worker: int) -> int:
    """A worker's gradient or model, at the server."""
    return worker


def asked(worker: int, workers: int) -> int:
    """A worker's question for the weights, at the server."""
    return workers + worker


def left(worker: int, workers: int) -> int:
    """A worker that has made its last gradient, at the server."""
    return 2 * workers + worker


def sent(worker: int) -> int:
    """Another worker's model, at a worker."""
    return worker


def replied(workers: int) -> int:
    """The servers' weights, at a worker, when all servers have sent theirs."""
    return workers
