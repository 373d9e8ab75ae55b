# pyright: basic
"""Execution: eager as it comes, or each part through `torch.compile`; what ranks say to each other is left as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from foretell.plan.policies.execution import Execution
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 35

BACKEND = "FORETELL_COMPILE_BACKEND"
"""The variable of the environment that names another backend than inductor, which needs a compiler of C++ on a CPU."""


def refusals(part: Execution, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.mode in ("graphed", "captured"):
        why = (
            f"+{part.mode} does not run yet: kernels of a GPU are recorded, and a step here has host work between them"
        )
        yield why, "+compiled, or +eager"


def apply(part: Execution, subject: Subject) -> None:
    if part.mode == "compiled":
        for own in subject.parts:
            own.compile(backend=os.environ.get(BACKEND, "inductor"))
