# pyright: basic
"""Micro-batches: `+m4`. Whoever drives the passes reads their number from the plan; there is nothing to change."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 0


def refusals(part: Microbatches, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: Microbatches, subject: Subject) -> None:
    pass
