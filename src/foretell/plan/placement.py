"""Where the elements of a tensor are along one axis of the mesh.

A strategy says where tensors should be; what has to travel follows from the difference between
where they are and where they should be (`program/sharding/transition.py` is the only place that knows how).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Replicated:
    """Every rank has all of it, and all have the same."""

    def __str__(self) -> str:
        return "replicated"


@dataclass(frozen=True, slots=True)
class Sharded:
    """Every rank has its share of one dim, by its place among the tensor's dims.

    `halo` are positions of the neighbours that it sees besides, before and after its own.
    """

    dim: int
    halo: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"sharded({self.dim}{f', halo {self.halo[0]}+{self.halo[1]}' if any(self.halo) else ''})"


@dataclass(frozen=True, slots=True)
class Partial:
    """Every rank has a summand of all of it."""

    def __str__(self) -> str:
        return "partial"


@dataclass(frozen=True, slots=True)
class Routed:
    """Every rank has the rows of one dim that belong to its share of the experts."""

    dim: int

    def __str__(self) -> str:
        return f"routed({self.dim})"


@dataclass(frozen=True, slots=True)
class Rotating:
    """Every rank has one share of a dim at a time, and sees all of them one after the other."""

    dim: int

    def __str__(self) -> str:
        return f"rotating({self.dim})"


@dataclass(frozen=True, slots=True)
class Served:
    """It lies on `servers` ranks, a share on each; the others ask them for it."""

    servers: int

    def __str__(self) -> str:
        return f"served({self.servers})"


@dataclass(frozen=True, slots=True)
class Drifted:
    """Every rank has its own version of all of it."""

    def __str__(self) -> str:
        return "drifted"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Every rank has the average of its own version and those of some neighbours."""

    neighbours: int

    def __str__(self) -> str:
        return f"mixed({self.neighbours})"


Placement: TypeAlias = Replicated | Sharded | Partial | Routed | Rotating | Served | Drifted | Mixed

REPLICATED = Replicated()
PARTIAL = Partial()
DRIFTED = Drifted()
