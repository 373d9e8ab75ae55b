"""What the parts of a step and of memory are called wherever a person reads them: terminal, page, report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foretell.oracle.rates import IMBALANCE

PARTS: Final[Mapping[str, str]] = {
    "input": "waiting for data",
    "optimizer": "optimizer step",
    "host": "waiting for the host",
    "other": "host copies, other",
    "paging": "paging to the host",
    IMBALANCE: "stage imbalance",
    "states": "optimizer states",
    "working": "temporary buffers",
    "workspace": "library workspaces",
    "allocator": "allocator overhead",
    "context": "device context",
    "communicators": "communicators",
    "trainer's copies": "trainer's buffers",
    "resting": "weights, gradients and states",
    "held by streams": "held by communication streams",
    "update's copies": "copies in the optimizer step",
}

COMMUNICATION: Final[Mapping[str, str]] = {
    "shard": "DP shard",
    "ps": "parameter server",
    "local": "local SGD",
}
"""Axes that are not said by their letters."""


def part_name(key: str) -> str:
    """A part of a step or of memory as people say it: `exposed.tp` is exposed TP communication."""
    first, _, axes = key.partition(".")
    if first != "exposed" or not axes:
        return PARTS.get(key, key)
    return f"exposed {'+'.join(map(_axis, axes.split('+')))} communication"


def _axis(name: str) -> str:
    word, _, more = name.partition(".")
    said = COMMUNICATION.get(word, word.upper() if len(word) == 2 else word)
    return f"{said} ({more})" if more else said
