"""A way out of a plan that breaks rules: a plan near it that breaks none, and that was predicted to fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from foretell.errors import ForetellError
from foretell.oracle import proposals
from foretell.oracle.advice import harmless
from foretell.oracle.predict import Prediction
from foretell.oracle.proposals import Proposal
from foretell.plan.plan import Plan
from foretell.plan.repair import NOTHING_NEAR
from foretell.units import show_bytes

MOST_NEAR: Final = 6
"""Plans near the one that was asked for whose memory is looked at."""

MOST_SAVING: Final = 24
"""And of the nearest of them with something that saves memory."""


class WayOut(NamedTuple):
    """A plan to offer; where there is none, what was looked at instead."""

    plan: Plan | None
    otherwise: str = NOTHING_NEAR


class PlansNear(NamedTuple):
    """The plans that may be offered, and what is known of each."""

    passing: Callable[[], Iterable[Plan]]  # every rule, the nearest first
    micro: Callable[[Plan], int]  # samples of one rank at a time
    ranks: int  # of the cluster
    legal: Callable[[Plan], bool]
    predicted: Callable[[Plan], Prediction]
    fits: Callable[[Prediction], bool]

    def way_out(self) -> WayOut:
        """The nearest plan that fits in memory; else the nearest with what saves enough; else the numbers."""
        near = list(islice(harmless(self.passing), MOST_NEAR))
        looked_at: list[Prediction] = []
        for plan in chain(near, islice(self._savings(near[:1]), MOST_SAVING)):
            found = self._predicted(plan)
            if found is not None and self.fits(found):
                return WayOut(plan)
            looked_at += [found] if found is not None else []
        if not looked_at:
            return WayOut(near[0] if near else None)
        least = min(looked_at, key=lambda one: one.memory_bytes)
        room = f"{show_bytes(least.memory_bytes)} of {show_bytes(least.usable)} usable"
        plans = f"none of {len(looked_at)} plans near this one that pass every rule fits in memory"
        return WayOut(None, f"more or larger devices: {plans}; {least.plan} needs least, {room}")

    def _savings(self, plans: Iterable[Plan]) -> Iterator[Plan]:
        """The same plans with one or two things that save memory, and that the trainer allows."""
        for plan in plans:
            once = [list(self._legal(kind)) for kind in self._saving(plan)]
            yield from chain.from_iterable(once)
            most = [kind[-1] for kind in once if kind]  # what saves most of its kind, with each other one
            yield from (twice for first in most for kind in self._saving(first) for twice in self._legal(kind))

    def _saving(self, plan: Plan) -> Iterator[Iterable[Proposal]]:
        """More micro-batches, weights and states in shares, what runs again, idle ranks: nothing has to be bought."""
        yield proposals.smaller_passes(plan, plan.microbatches, self.micro(plan))
        yield proposals.storages(plan)
        yield (one for one in proposals.policies(plan) if one.group == "recompute")
        yield proposals.idle_ranks(plan, self.ranks)

    def _legal(self, proposed: Iterable[Proposal]) -> Iterator[Plan]:
        for one in proposed:
            plan = one.plan()
            if plan is not None and self.legal(plan):
                yield plan

    def _predicted(self, plan: Plan) -> Prediction | None:
        try:
            return self.predicted(plan)
        except ForetellError:
            return None
