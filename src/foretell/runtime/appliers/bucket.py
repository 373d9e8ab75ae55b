# pyright: basic
"""Buckets of gradients: `+bucket:25MB`. DistributedDataParallel is given the size by the data applier."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.policies.bucket import Bucket
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.subject import Subject

ORDER = 0


def refusals(part: Bucket, setting: Setting) -> Iterator[tuple[str, str]]:
    data = setting.plan.axis(Data)
    if data is not None and data.storage in ("zero2", "zero3"):
        yield f"buckets beside {data.storage}: FSDP2 sums the gradients of a layer together", "no +bucket"


def apply(part: Bucket, subject: Subject) -> None:
    pass
