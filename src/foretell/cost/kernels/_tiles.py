"""Products cut into tiles: how long m x n x k takes when whole tiles run in whole waves.

Libraries have kernels for several tile sizes, and can share a long sum out over more multiprocessors (split-K) and
add the partial results up. They take what is fastest, or nearly; so the price is the least over both. With one fixed
tile the form is worse than a constant; with tiles but no split-K no better than a roofline (DeepBench, 160 products
each on four devices; studies/kernels has the errors of this form).
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from foretell.caches import forgettable
from foretell.cost.kernels._reached import memory_rate, rates
from foretell.hardware.cluster import Device
from foretell.units import WIDTH, Quantity

TILES: Final = (
    (256, 256),
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (64, 32),
    (32, 64),
)
"""Rows and columns of the tile that one multiprocessor (of Blackwell: a pair) makes at a time."""

SPLITS: Final = (1, 2, 4, 8, 16, 32)
"""Over how many blocks a sum may be shared out."""

RAMP: Final = 32
"""Steps of k that a block costs besides, to fill and drain its pipeline: 16 to 48 fit the DeepBench sweeps alike."""

CACHE_BYTES: Final = 64
"""Bytes a cycle that a multiprocessor gets from the shared cache (Jia et al. 2018, arXiv 1804.06826: Volta; newer
ones have about as much): small tiles have too little work for what they read to keep matrix units busy."""

OPERAND: Final = {"tf32": 4.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Bytes of an operand where the precision is no element type."""

BARELY: Final = 1 - 1e-9
"""Room for rounding, so that what is skipped is never what an array would have taken."""

SUM_BYTES: Final = 4
"""Bytes of a partial result: sums are kept in fp32."""


class Tile(NamedTuple):
    rows: int
    columns: int
    step: float  # seconds of one multiprocessor for one step of k


class Units(NamedTuple):
    """Products of one precision on one device."""

    tiles: tuple[Tile, ...]
    multiprocessors: int
    sums: float  # seconds for one element of a partial result to be written or read
    stream: float  # B/s of operands
    provenance: str


@forgettable
@functools.lru_cache(maxsize=256)
def units(device: Device, precision: str) -> Units:
    """What products in one precision need to know of a device."""
    reached = rates(device, precision)
    one = reached.flops / device.multiprocessors
    cache = CACHE_BYTES * device.clock_hz
    width = OPERAND[precision] if precision in OPERAND else WIDTH[precision]
    tiles = tuple(Tile(m, n, max(2 * m * n / one, (m + n) * width / cache)) for m, n in TILES)
    sums = SUM_BYTES / memory_rate(device)
    return Units(tiles, device.multiprocessors, sums, reached.stream, reached.provenance)


def product_seconds(m: Quantity, n: Quantity, k: Quantity, batch: Quantity, by: Units) -> Quantity:
    """Seconds of `batch` products of m x k by k x n in the matrix units; memory not counted."""
    if all(isinstance(size, int | float) for size in (m, n, k, batch)):
        return _one(m, n, k, batch, by)
    return _several(m, n, k, batch, by)


def _several(m: Quantity, n: Quantity, k: Quantity, batch: Quantity, by: Units) -> Any:
    """`_one` of arrays: all tiles with all splits at once."""
    import numpy

    rows, columns, step = (numpy.array(own)[:, None, None] for own in zip(*by.tiles, strict=True))
    splits = numpy.array(SPLITS)[:, None]
    blocks = -(-m // rows) * -(-n // columns) * batch
    waves = -(-blocks * splits // by.multiprocessors)
    added = numpy.where(splits > 1, (splits + 1) * (m * n * batch * by.sums), 0.0)
    return (waves * step * (k / splits + RAMP) + added).min(axis=(0, 1))


@forgettable
@functools.lru_cache(maxsize=65536)
def _one(m: float, n: float, k: float, batch: float, by: Units) -> float:
    best = float("inf")
    sums = m * n * batch * by.sums
    lengths = [(split, k / split + RAMP, (split + 1) * sums if split > 1 else 0.0) for split in SPLITS]
    for rows, columns, step in by.tiles:
        blocks = -(-m // rows) * -(-n // columns) * batch
        if blocks * step * k / by.multiprocessors * BARELY >= best:
            continue  # even without waste it is no faster
        for split, length, added in lengths:
            waves = -(-blocks * split // by.multiprocessors)
            best = min(best, waves * step * length + added)
    return best
