"""What the ways to keep several versions of the weights have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretell.plan.refusal import Refusal
from foretell.plan.repair import removed, replaced, with_fields
from foretell.plan.strategy import Strategy
from foretell.plan.together import storage

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


def one_way(strategy: Strategy, setting: Setting) -> Iterator[Refusal]:
    """The refusal of weights in shares beside versions: whose version a share would be of, nobody says."""
    kept = storage(setting.plan)
    if strategy.ranks == 1 or not kept.states:
        return
    here = f"{strategy.word}{strategy.ranks}"
    why = f"{here} keeps versions of whole weights, and {kept.name} keeps shares of one version"
    data = next(axis for axis in setting.plan.axes if any(one.storage.states for one in axis.axes()))
    whole = with_fields(data, storage="replicated", ranks=data.world, shard=0)
    mends = (*replaced(setting.plan, data, whole), *removed(setting.plan, strategy))
    yield Refusal("one way to keep versions", why, mends=mends)
