"""The largest number of ranks that a way of splitting can use (Kahira et al. 2021, Table 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.strategy import Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


def limited(strategy: Strategy, setting: Setting, way: str) -> Iterator[Refusal]:
    """The refusal of more ranks than the model's smallest layer can be split into."""
    most, by = facts(setting.graph).limit(way)
    if not most:
        why = f"{strategy.word}{strategy.ranks}: {setting.graph.name} has nothing to split so"
        yield Refusal(f"{way} limit", why, f"the plan without {strategy.word}")
    elif strategy.ranks > most and not getattr(strategy, "only", ""):
        why = f"{strategy.word}{strategy.ranks} on a model that can be split into {most} at most, because of {by}"
        yield Refusal(
            f"{way} limit", why, f"{strategy.word}{most}, or a part of the model: {strategy.word}{strategy.ranks}[...]"
        )
