"""Where adapters stand: `lora.py` reads it when it places them."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.targets import Targets
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 11


def refusals(part: Targets, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: Targets, subject: Subject) -> None:
    pass
