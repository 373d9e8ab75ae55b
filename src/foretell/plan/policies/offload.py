"""Offload: what lies in host memory and comes to the device when it is used."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Flags, Option


class Offload(Policy, frozen=True, kw_only=True, tag="offload"):
    """What lies in host memory.

    optimizer    master weights and the optimizer's states; the host updates them
    activations  what the backward pass needs goes out after its forward and comes back before
    weights      weights come for each use, and new ones go back; with `optimizer` they are updated where they lie
    """

    word: ClassVar[str] = "offload"
    place: ClassVar[int] = 40
    searched: ClassVar[bool] = False  # a last resort: where something fits without, it is slower
    summary: ClassVar[str] = "keep some of the state in host memory"
    references: ClassVar[tuple[str, ...]] = (
        "Ren et al. 2021 (ZeRO-Offload), arXiv 2101.06840",
        "Rajbhandari et al. 2021 (ZeRO-Infinity), arXiv 2104.07857",
        "Rhu et al. 2016 (vDNN), arXiv 1602.08124",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Flags("moved", ("optimizer", "activations", "weights")),)
    example: ClassVar[str] = "+offload:optimizer"

    moved: tuple[str, ...] = ()

    @classmethod
    def choices(cls) -> tuple[Offload, ...]:
        some = ((), ("optimizer",), ("activations",), ("optimizer", "activations"))
        return tuple(cls(moved=moved) for moved in some)

    @property
    def optimizer(self) -> bool:
        return "optimizer" in self.moved

    @property
    def activations(self) -> bool:
        return "activations" in self.moved

    @property
    def weights(self) -> bool:
        return "weights" in self.moved

    def joined(self, other: Policy) -> Policy | None:
        if not isinstance(other, Offload) or set(self.moved) & set(other.moved):
            return None
        order = ("optimizer", "activations", "weights")
        return Offload(moved=tuple(word for word in order if word in self.moved + other.moved))
