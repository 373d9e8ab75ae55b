"""The largest number of ranks that a way of splitting can use (Kahira et al. 2021, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.plan.facts import part_limit
from foretell.plan.refusal import Refusal
from foretell.plan.repair import fewer, removed, replaced
from foretell.plan.strategy import Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


def limited(strategy: Strategy, setting: Setting, way: str, what: str) -> Iterator[Refusal]:
    """The refusal of more ranks than the layer with the fewest of something has of it."""
    if strategy.ranks == 1:
        return
    only = getattr(strategy, "only", "")
    most, by = part_limit(setting.graph, only, way)
    here = f"{strategy.word}{strategy.ranks}"
    if not most:
        part = f"[{only}] of {setting.graph.name}" if only else setting.graph.name
        yield Refusal(f"{way} limit", f"{here}: {part} has no {what} to split", mends=removed(setting.plan, strategy))
    elif strategy.ranks > most:
        part = f"a part of the model, {here}[PATH], with {strategy.ranks} {what} or more"
        mends = replaced(setting.plan, strategy, *fewer(strategy, lambda ranks: ranks <= most))
        yield Refusal(f"{way} limit", f"{here}, but {by} has {most} {what} only", part, mends)
