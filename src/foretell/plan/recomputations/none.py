"""Nothing runs again: what holds when a plan does not speak of it."""

from __future__ import annotations

from foretell.plan.recomputation import Recomputation


class SaveAll(Recomputation, frozen=True):
    summary = "all that the backward pass needs is saved"
    place = 0


RECOMPUTATION = SaveAll()
