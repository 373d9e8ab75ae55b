# pyright: basic
"""Overlap: with `+no-overlap` gradients are averaged when the backward pass is through, not beside it."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.overlap import Overlap
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.subject import Subject

ORDER = 0


def refusals(part: Overlap, setting: Setting) -> Iterator[tuple[str, str]]:
    data = setting.plan.axis(Data)
    if part.when == "never" and data is not None and data.storage in ("zero2", "zero3"):
        yield f"+no-overlap beside {data.storage} does not run: FSDP2 gathers ahead", "dp, or dp:zero1"


def apply(part: Overlap, subject: Subject) -> None:
    subject.later |= part.when == "never"
