"""Strides and paddings, found from the sizes before and after a sliding window."""

from __future__ import annotations

from typing import NamedTuple

from foretell.model.operators.convolution import extent
from foretell.units import ceil_div

MOST_TRIED = 64
"""Paddings that are tried, from the least on; a file may ask for any kernel."""


class Window(NamedTuple):
    """How a kernel moves along each dim."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil: bool = False  # a last window may hang over the edge


def window(before: tuple[int, ...], kernel: tuple[int, ...], after: tuple[int, ...], *, pooling: bool) -> Window | None:
    """The least padding and the smallest stride that lead from one size to the other, if any do."""
    # a pooling may hang over the edge rather than be padded, and torch pads it by half a window at most
    tries = [(0, False), (0, True), (2, False), (2, True)] if pooling else [(0, False), (1, False)]
    for share, ceil in tries:
        moves: list[tuple[int, int]] = []
        for size, taps, wanted in zip(before, kernel, after, strict=True):
            most = (taps - 1) // share if share else 0
            move = _move(size, taps, wanted, most, ceil)
            moves += [] if move is None else [move]
        if len(moves) == len(before):
            return Window(tuple(stride for stride, _ in moves), tuple(padding for _, padding in moves), ceil)
    return None


def _move(size: int, kernel: int, wanted: int, most: int, ceil: bool) -> tuple[int, int] | None:
    """(stride, padding) along one dim with no more padding than `most`, if there is one."""
    least = max(0, ceil_div(wanted - 1 + kernel - size, 2))  # with less, stride 1 does not make enough
    for padding in range(least, min(most, least + MOST_TRIED) + 1):
        free = size + 2 * padding - kernel
        stride = free // wanted + 1
        if ceil and wanted > 1:
            stride = max(1, ceil_div(free, wanted - 1))
        if extent(size, kernel, stride, padding, ceil=ceil) == wanted:
            return stride, padding
    return None
