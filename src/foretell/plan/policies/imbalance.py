"""Imbalance: how many more rows the fullest of the ranks that divide the experts gets than they get on average."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.facts import facts
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.strategies.data import Data
from foretell.plan.syntax import Factor, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Imbalance(Policy, frozen=True, kw_only=True, tag="imbalance"):
    """Rows of the fullest expert rank over the mean; 1 is even.

    No row is dropped or padded, and all wait for the fullest rank: its experts, what it keeps of their rows,
    and what travels to it and from it are this many times as large (not where all tokens go to all ranks).
    """

    word: ClassVar[str] = "imbalance"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 95
    summary: ClassVar[str] = "rows of the fullest expert rank over the mean"
    references: ClassVar[tuple[str, ...]] = (
        "Fedus et al. 2021 (Switch Transformers: capacity and load), arXiv 2101.03961",
        "Gale et al. 2022 (MegaBlocks: experts without dropped tokens), arXiv 2211.15841",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Factor("imbalance", "factor"),)
    example: ClassVar[str] = "+imbalance1.2"

    factor: float = 1.0

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        data = setting.plan.axis(Data)
        ranks = data.experts if data else 1
        if self.factor == 1:
            return
        if not facts(setting.graph).experts:
            why = f"+imbalance{self.factor:g}, but {setting.graph.name} has no experts"
        elif ranks < 2:
            why = f"+imbalance{self.factor:g} is about ranks that divide the experts, and the plan has none (ep)"
        elif self.factor > ranks:
            why = f"+imbalance{self.factor:g}: the fullest of ep{ranks} has at most all rows, {ranks} times the mean"
        else:
            return
        yield Refusal("expert rows", why, mends=changed(setting.plan, Imbalance()))
