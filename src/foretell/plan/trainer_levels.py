"""The software that a trainer is based on."""

from __future__ import annotations

from foretell.plan.trainer import Trainer, trainer


def levels(made: Trainer) -> list[Trainer]:
    """A trainer, the one it is based on, and so on, down to PyTorch as it comes."""
    found = [made]
    while found[-1].based_on:
        found.append(trainer(found[-1].based_on))
    return found
