"""What a step of a method after pre-training consists of: phases, each of one model, one after the other."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from foretell.registry import OpenSet

Doing: TypeAlias = Literal["rollout", "forward", "train"]
"""Writing answers, a forward pass without gradients, or training."""

Role: TypeAlias = Literal["policy", "reference", "reward", "critic"]

SCORING: Final = ("reward", "critic")
"""Roles whose model gives a score in place of logits."""


class AlignmentPhase(NamedTuple):
    """One model at work."""

    doing: Doing
    role: Role
    what: str = ""  # as the page tells it
    optional: bool = False  # only where its model is asked for

    @property
    def name(self) -> str:
        return self.what or f"{self.role}, {self.doing}"


class AlignmentMethod(NamedTuple):
    """A way to train after pre-training."""

    summary: str
    references: tuple[str, ...]
    phases: tuple[AlignmentPhase, ...]
    rows: int = 1  # sequences of a sample: a pair has two
    scores: bool = False  # whether the model that is asked for gives a score itself

    @property
    def writes(self) -> bool:
        """Whether it trains on answers that it writes."""
        return any(phase.doing == "rollout" for phase in self.phases)


METHODS: Final = OpenSet("foretell.oracle.methods", "method")


def method(name: str) -> AlignmentMethod:
    """A method by its word."""
    return METHODS[name].METHOD
