"""A plan: what each axis of the mesh does, and the policies. One frozen value from here to the end.

Two plans that mean the same are equal: policies stand in one order, and a policy that says what
holds anyway is left out. `str(plan)` is the plan's one text, and `text.parse` reads it back.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from foretell.errors import BadInput, unknown
from foretell.plan.members import policies, strategies, union
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policy import Policy
from foretell.plan.strategies.data import Data
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import MOST, ParsedField, spelled
from foretell.units import product

if TYPE_CHECKING:
    AnyStrategy = Strategy
    AnyPolicy = Policy
else:
    AnyStrategy = union(strategies())  # what a plan read from JSON may hold
    AnyPolicy = union(policies())

S = TypeVar("S", bound=Strategy)
P = TypeVar("P", bound=Policy)

PART = r"[A-Za-z0-9_.*?,/-]+"
"""What may stand between [ and ]: paths with * and ranges a..b, and commas between."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Axes from the outermost (slowest links) to the innermost, and policies. No axes are one rank: `dp1`."""

    axes: tuple[AnyStrategy, ...] = ()
    policies: tuple[AnyPolicy, ...] = ()

    def __post_init__(self) -> None:
        axes = self.axes or (Data(ranks=1),)
        said = [policy for policy in self.policies if policy != type(policy)()]
        _check(axes, said)
        order = list(policies())
        ordered = tuple(sorted(said, key=lambda policy: order.index(policy.word)))
        msgspec.structs.force_setattr(self, "axes", axes)
        msgspec.structs.force_setattr(self, "policies", ordered)

    @property
    def ranks(self) -> int:
        """All ranks: the size of the world that the plan needs."""
        return product(axis.world for axis in self.axes)

    @property
    def microbatches(self) -> int:
        """Micro-batches a step; 1 where the plan does not say."""
        return self.policy(Microbatches).count

    @overload
    def axis(self, kind: type[S]) -> S | None: ...
    @overload
    def axis(self, kind: str) -> Strategy | None: ...
    def axis(self, kind: type[Strategy] | str) -> Strategy | None:
        """The axis with this strategy (by class or word), the outermost of several; None if there is none."""
        word = kind if isinstance(kind, str) else kind.word
        if word not in strategies():
            raise unknown("strategy", word, strategies())
        return next((axis for axis in self.axes if axis.word == word), None)

    @overload
    def policy(self, kind: type[P]) -> P: ...
    @overload
    def policy(self, kind: str) -> Policy: ...
    def policy(self, kind: type[Policy] | str) -> Policy:
        """The policy of this kind (by class or word), or its default where the plan does not speak of it."""
        word = kind if isinstance(kind, str) else kind.word
        if word not in policies():
            raise unknown("policy", word, policies())
        return next((policy for policy in self.policies if policy.word == word), policies()[word]())

    def __str__(self) -> str:
        return " ".join([*map(axis_text, self.axes), *map(policy_text, self.policies)])


def axis_text(axis: Strategy) -> str:
    """How one axis is written: `dp4:zero3,shard8`, `spatial2x2[conv1..pool2]`."""
    ranks = "x".join(map(str, grid_of(axis))) or str(axis.ranks)
    part = f"[{part_of(axis)}]" if part_of(axis) else ""
    options = ",".join(_options(axis))
    return f"{axis.word}{ranks}{part}{':' if options else ''}{options}"


def policy_text(policy: Policy) -> str:
    """How one policy is written: `+recompute:block`."""
    return f"+{'' if policy.bare else f'{policy.word}:'}{','.join(_options(policy))}"


def grid_of(axis: Strategy) -> tuple[int, ...]:
    """The grid that the ranks of an axis are, if they are one."""
    return getattr(axis, "grid_ranks", ())


def part_of(axis: Strategy) -> str:
    """The part of the model that an axis is for; all of it if empty."""
    return getattr(axis, "only", "")


@functools.lru_cache(maxsize=4096)
def _options(member: Strategy | Policy) -> tuple[str, ...]:
    defaults = _defaults(type(member))
    texts = (spelled(option, getattr(member, option.field), defaults[option.field]) for option in member.syntax)
    return tuple(text for text in texts if text)


@functools.cache
def _defaults(kind: type[Strategy] | type[Policy]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def repeated(axis: Strategy, others: tuple[Strategy, ...]) -> bool:
    """Whether one of these has the same strategy for the same part."""
    return any(other.word == axis.word and part_of(other) == part_of(axis) for other in others)


def too_many(axes: tuple[Strategy, ...]) -> str:
    """What is wrong with a plan of more ranks than anybody has."""
    ranks = product(axis.world for axis in axes)
    return f"{' '.join(map(axis_text, axes))} are {ranks:,} ranks"


def _check(axes: tuple[Strategy, ...], said: list[Policy]) -> None:
    """Refuse values that have no text, so that every plan can be printed and read again."""
    ranks = 1
    for place, axis in enumerate(axes):
        ranks *= _checked_world(axis)
        if repeated(axis, axes[:place]):
            raise BadInput(
                f"{axis.word} twice", where="plan", fix="one axis of each strategy, or each for its own part"
            )
    if ranks > MOST:
        raise BadInput(too_many(axes), where="plan", fix=f"at most {MOST:,} ranks in all")
    for place, policy in enumerate(said):
        if policy.word in [other.word for other in said[:place]]:
            raise BadInput(f"two policies for {policy.word}", where="plan", fix=f"one of them: {policy_text(policy)}")
        _check_policy(policy)


@functools.lru_cache(maxsize=4096)
def _checked_world(axis: Strategy) -> int:
    """The ranks of a strategy that can be written down."""
    if not 1 <= axis.ranks <= MOST:
        raise BadInput(f"{axis.word} with {axis.ranks} ranks", where="plan", fix=f"1 to {MOST:,} ranks")
    grid = grid_of(axis)
    if grid and (len(grid) < 2 or min(grid) < 1 or product(grid) != axis.ranks):
        shown = "x".join(map(str, grid))
        raise BadInput(f"{axis.word}: {axis.ranks} ranks are not a grid of {shown}", where="plan", fix=axis.example)
    if part_of(axis) and not re.fullmatch(PART, part_of(axis)):
        raise BadInput(f"{axis.word}: no path is written {part_of(axis)!r}", where="plan", fix="fc*, conv1..pool2")
    _check_options(axis)
    return axis.world


@functools.lru_cache(maxsize=1024)
def _check_policy(policy: Policy) -> None:
    _check_options(policy)
    if len(_options(policy)) != 1:
        raise BadInput(f"{policy.word} is given twice: {policy_text(policy)}", where="plan", fix=policy.example)


@functools.lru_cache(maxsize=4096)
def _check_options(member: Strategy | Policy) -> None:
    defaults = _defaults(type(member))
    for option in member.syntax:
        value = getattr(member, option.field)
        if value == defaults[option.field]:
            continue
        if option.read(option.spell(value).lower()) != ParsedField(value):
            forms = ", ".join(option.forms)
            raise BadInput(f"{member.word}: {option.field}={value!r} cannot be written", where="plan", fix=forms)
