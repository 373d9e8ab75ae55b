"""Named dims, and the loops that run over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from foretell.units import Quantity, product, share

Split: TypeAlias = Mapping[str, Quantity]
"""Dim name to the number of ranks that share it."""


class Dim(msgspec.Struct, frozen=True, array_like=True):
    """One dimension of a tensor or loop, with its meaning as its name."""

    name: str
    size: int

    def local(self, split: Split) -> Quantity:
        """The largest share one rank holds when the dim is split."""
        ranks = split.get(self.name)
        return self.size if ranks is None else share(self.size, ranks)


Dims: TypeAlias = tuple[Dim, ...]


class Loop(msgspec.Struct, frozen=True, array_like=True):
    """A loop of an operator (its role there) and the dims that it walks over."""

    name: str
    dims: tuple[Dim, ...]

    def local(self, split: Split) -> Quantity:
        return product(dim.local(split) for dim in self.dims)
