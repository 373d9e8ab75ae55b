"""A choice that takes no axis: precision, recompute, offload, ...

A policy is a frozen value with a file of its own in `policies/`. Built without arguments it is the
default, what holds when the plan does not speak of it; such a policy is never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from foretell.plan.refusal import Refusal
from foretell.plan.syntax import Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Policy(msgspec.Struct, frozen=True, kw_only=True, tag_field="policy", forbid_unknown_fields=True):
    """One choice. A written one says exactly one of its options: `+recompute:block`."""

    word: ClassVar[str]
    """What it is called, and what is written before the colon unless it is bare."""

    bare: ClassVar[bool] = False
    """Whether its options stand alone: `+bf16`, not `+precision:bf16`."""

    place: ClassVar[int]
    """Where it stands among the policies of a plan that is printed, lower first."""

    inside: ClassVar[tuple[str, ...]] = ()
    """Axes after whose colon it may also be written: `pp4:1f1b,m16`."""

    searched: ClassVar[bool] = True
    """Whether the search tries its choices unasked."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    syntax: ClassVar[tuple[Option, ...]]
    example: ClassVar[str]

    @classmethod
    def choices(cls) -> tuple[Self, ...]:
        """What the search tries, what holds anyway first."""
        return (cls(),)

    def joined(self, other: Policy) -> Policy | None:
        """Both of two policies of this kind as one, or None where one of them must go."""
        return None

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        """The rules it breaks for this plan, model, job and trainer."""
        return iter(())
