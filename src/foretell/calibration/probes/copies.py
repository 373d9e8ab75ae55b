# pyright: basic
"""Copies between the host's memory and the device's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from foretell.calibration.case import Case, Scope
from foretell.cost.samples import Transfer

SUMMARY = "copies between host and device"

SIZES = (2**12, 2**20, 2**24, 2**28)
TIMES = 5


def cases(scope: Scope) -> Iterator[Case]:
    """None on a processor, whose memory is the host's."""
    if scope.device == "cuda":
        for size, to_device, pinned in product(SIZES[1::2] if scope.quick else SIZES, (True, False), (True, False)):
            yield _copy(scope, size, to_device, pinned)


def _copy(scope: Scope, size: int, to_device: bool, pinned: bool) -> Case:
    def measure(clock: Any) -> Any:
        there = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        here = torch.empty(size, dtype=torch.uint8, device=scope.device)
        source, goal = (there, here) if to_device else (here, there)
        return clock.wall(lambda: goal.copy_(source, non_blocking=pinned), TIMES)

    return Case(Transfer(bytes=size, to_device=to_device, pinned=pinned), measure)
