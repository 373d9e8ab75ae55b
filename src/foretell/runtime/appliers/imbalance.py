# pyright: basic
"""Imbalance: a rank without the others is the fullest of those that divide experts, by as much as it is told.

Among real ranks rows go where routers send them, and nobody tells them: then it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 0

ALONE = True
"""Whether it is refused only where other ranks are there."""


def refusals(part: Imbalance, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.factor > 1:
        why = f"+imbalance{part.factor:g} does not run: rows go where routers of the ranks send them"
        yield why, "foretell rehearse, or without it"


def apply(part: Imbalance, subject: Subject) -> None:
    subject.fullest = part.factor
