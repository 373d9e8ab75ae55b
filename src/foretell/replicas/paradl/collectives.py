"""Seconds of the paper's collectives: rings, on one link (section 4.2 of the paper)."""

from __future__ import annotations

from foretell.replicas.paradl.platform import Link
from foretell.units import Quantity


def send(size: Quantity, link: Link) -> Quantity:
    """One message of `size` bytes."""
    return link.startup + size / link.bandwidth


def all_gather(ranks: Quantity, size: Quantity, link: Link) -> Quantity:
    """A ring after which every rank has all `size` bytes, a share of which each rank had."""
    return (ranks - 1) * send(size / ranks, link)


def all_reduce(ranks: Quantity, size: Quantity, link: Link) -> Quantity:
    """A ring that sums `size` bytes: reduced in shares, then gathered."""
    return 2 * all_gather(ranks, size, link)


def exchange_halo(size: Quantity, link: Link) -> Quantity:
    """`size` bytes to the neighbour on each side, one after the other."""
    return 2 * send(size, link)
