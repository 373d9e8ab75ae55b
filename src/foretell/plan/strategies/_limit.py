"""The largest number of ranks that a way of splitting can use (Kahira et al. 2021, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.plan.facts import facts
from foretell.plan.mending import fewer, removed, replaced
from foretell.plan.refusal import Refusal
from foretell.plan.strategy import Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


def limited(strategy: Strategy, setting: Setting, way: str, what: str) -> Iterator[Refusal]:
    """The refusal of more ranks than the layer with the fewest of something has of it."""
    if strategy.ranks == 1:
        return
    most, by = facts(setting.graph).limit(way)
    if not most:
        why = f"{strategy.word}{strategy.ranks}: {setting.graph.name} has nothing to split so"
        yield Refusal(f"{way} limit", why, mends=removed(setting.plan, strategy))
    elif strategy.ranks > most and not getattr(strategy, "only", ""):
        why = f"{strategy.word}{strategy.ranks}, but {by} has {most} {what} only"
        part = f"a part of the model, {strategy.word}{strategy.ranks}[PATH], with {strategy.ranks} {what} or more"
        mends = replaced(setting.plan, strategy, *fewer(strategy, lambda ranks: ranks <= most))
        yield Refusal(f"{way} limit", why, part, mends)
