"""What one axis of the mesh does: which dim it splits, and how weights are stored along it.

A strategy is a frozen value with its options as fields and a file of its own in `strategies/`. It
never says what travels: that follows from where tensors are and where they are needed.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from foretell.plan.placement import REPLICATED, Placement
from foretell.plan.refusal import Refusal
from foretell.plan.storage import STORAGES, Storage
from foretell.plan.syntax import Option, WordChoice
from foretell.units import product

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.setting import Setting


@dataclass(frozen=True, slots=True)
class Splitting:
    """Which loops an axis divides among its ranks.

    dim       the model's inputs arrive in shares of this dim, and operators go on with their share;
              `extent 0` is the first of the spatial dims
    weighted  loops of the operators that have weights (dense layers, convolutions, tables) to
              divide: `out` gives each rank some of the outputs, `in` some of the inputs. With
              both, a layer takes the inputs where they arrive in shares and else the outputs
    flows     whether shares that `weighted` made go on through other operators
    between   the dim in whose shares activations rest where no weighted operator holds them
    attention what attention does when its sequence is in shares: `rotate` keys and values, or
              divide `heads` instead
    experts   how the axis treats experts: `divide` them, so that rows travel to those they belong to, or
              leave them `whole`; else they are layers like others
    dispatch  how rows reach experts that are divided; empty: as the trainer does
    only      paths (with * and ranges a..b) of the operators that the axis divides; all if empty
    rest      the dim that it divides where `only` leaves operators out; none if empty, so that every rank
              does the same there
    """

    dim: str = ""
    weighted: tuple[str, ...] = ()
    flows: bool = False
    between: str = ""
    attention: str = ""
    experts: str = ""
    dispatch: str = ""
    only: str = ""
    rest: str = ""

    @property
    def shares_samples(self) -> bool:
        """Whether it divides the samples of the model or of a part of it, so that their number decides how."""
        return "sample" in (self.dim, self.rest)

    @property
    def asks_samples(self) -> bool:
        """Whether the number of samples decides what the axis divides; rows of experts may be divided by them."""
        return self.shares_samples or self.experts == "divide"


@dataclass(frozen=True, slots=True)
class Exchange:
    """When and with whom the versions of the weights are brought together along an axis.

    Each step and with all is synchronous training: gradients are summed before the update. With `own`
    versions every rank updates its own, and after `period` steps they take the placement `weights`.
    """

    own: bool = False
    period: int = 1
    weights: Placement = REPLICATED
    waits: str = "all"  # or `bounded` (by staleness), `nobody`
    staleness: int = 0


EACH_STEP = Exchange()


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """One axis of the mesh of ranks, with what it divides and how weights are stored along it."""

    name: str
    ranks: int
    splitting: Splitting = Splitting()
    storage: Storage = STORAGES["replicated"]
    exchange: Exchange = EACH_STEP


class Strategy(msgspec.Struct, frozen=True, kw_only=True, tag_field="strategy", forbid_unknown_fields=True):
    """What one axis does. Fields are what is written after the colon."""

    word: ClassVar[str]
    """How it is written: `dp` of `dp8`."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    syntax: ClassVar[tuple[Option, ...]] = ()
    example: ClassVar[str]
    grid: ClassVar[bool] = False
    """Whether the ranks may be a grid: `spatial2x2`."""

    parts: ClassVar[bool] = False
    """Whether it can be for a part of the model: `filter4[fc*]`."""

    searched: ClassVar[bool] = True
    """Whether the search tries it unasked. Not those after which a step is not the step of one rank any more."""

    place: ClassVar[int] = 50
    """Where the search puts its axis, lower ones outside: ranks that talk most are nearest."""

    ranks: int

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Self]:
        """What the search tries with so many ranks, on nodes of `node`: every word of every choice it has."""
        defaults = {field.name: field.default for field in msgspec.structs.fields(cls)}
        options = [option for option in cls.syntax if isinstance(option, WordChoice)]
        tried = [dict.fromkeys((defaults[option.field], *option.words.values())) for option in options]
        for values in itertools.product(*tried):
            yield cls(ranks=world, **{option.field: value for option, value in zip(options, values, strict=True)})

    @property
    def world(self) -> int:
        """Ranks of all its axes together."""
        return product(axis.ranks for axis in self.axes())

    @abc.abstractmethod
    def axes(self) -> tuple[MeshAxis, ...]:
        """The axes of the mesh it stands for, outermost first: mostly one."""

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        """The rules it breaks for this model, job and trainer."""
        return iter(())
