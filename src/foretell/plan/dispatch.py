"""How rows travel to their experts and home again: what each way sends, in collectives that links have prices for."""

from __future__ import annotations

import abc
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from foretell.plan.reach import Owners, Reach
from foretell.registry import OpenSet

Among: TypeAlias = Literal["group", "nodes", "node"]
"""All ranks that divide the experts; those at the same place of their nodes; or those of one node."""


class Sending(NamedTuple):
    """A collective of a dispatch."""

    kind: str
    among: Among
    share: float  # of the bytes of a rank's rows, one row for each expert of its tokens


class Dispatch(msgspec.Struct, frozen=True):
    """A way of dispatch. Sizes are for even routing: an imbalance is a factor on top."""

    name: ClassVar[str]
    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    together: ClassVar[bool] = False
    """Whether its collectives run at the same time, so that the slowest counts; else one after the other."""
    multiprocessors: ClassVar[int] = 0
    """How many of a device its messages hold where they run beside computation."""
    routed: ClassVar[bool] = True
    """Whether a rank gets what routers send to it, and the fullest gets more; else all get the same."""

    @abc.abstractmethod
    def to_experts(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        """What is sent from where tokens are to where their experts are."""

    @abc.abstractmethod
    def home(self, owners: Owners, ranks: int) -> tuple[Sending, ...]:
        """What is sent back."""


class RoutedRows(msgspec.Struct, frozen=True):
    """Rows on their way, of a message in a program."""

    dispatch: str
    home: bool  # back from the experts
    reach: Reach


DISPATCHES = OpenSet("foretell.plan.dispatches", "dispatch")

USUAL = "alltoall"


def dispatch(name: str) -> Dispatch:
    """A way of dispatch by its word."""
    found: Dispatch = DISPATCHES[name].DISPATCH
    return found
