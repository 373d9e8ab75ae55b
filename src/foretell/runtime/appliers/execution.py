# pyright: basic
"""Execution: eager as it comes, or each part through `torch.compile`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from foretell.plan.policies.execution import Execution
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.subject import Subject

ORDER = 35

BACKEND = "FORETELL_COMPILE_BACKEND"
"""The variable of the environment that names another backend than inductor, which needs a compiler of C++ on a CPU."""

ALONE = ("tp", "cp", "filter", "channel", "spatial")
"""Strategies whose layers talk to each other: torch would have to compile that too."""


def refusals(part: Execution, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.mode == "captured":
        yield "+captured does not run yet", "+compiled, or +eager"
    if part.mode != "compiled":
        return
    beside = [axis.word for axis in setting.plan.axes if axis.word in ALONE and axis.world > 1]
    data = setting.plan.axis(Data)
    if data is not None and data.world > 1:
        beside += [data.storage] if data.storage in ("zero2", "zero3") else []
        beside += ["ep"] if data.experts > 1 else []
    if beside:
        yield f"compiled layers beside {beside[0]} do not run yet", "+eager, or dp and pp alone"


def apply(part: Execution, subject: Subject) -> None:
    if part.mode == "compiled":
        for own in subject.parts:
            own.compile(backend=os.environ.get(BACKEND, "inductor"))
