"""The zoo's modules under the project's own appliers: what `foretell rehearse` runs."""

from __future__ import annotations

from typing import Any

from cases import Case
from subjects import Mark, Step

from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.assignment import Assignment, Rehearsal
from foretell.runtime.clock import BETWEEN
from foretell.runtime.training import RankTraining
from foretell.runtime.worker import checked


def step(case: Case, setting: Setting, device: str) -> Step:
    data: Any = setting.plan.axis(Data)
    hollow = data is not None and data.world > 1 and data.storage in ("zero2", "zero3")
    asked = Rehearsal(case.rank, case.cluster, case.priced, hollow=hollow)
    assignment = Assignment(
        model=case.model, plan=case.plan, batch=case.batch, seq=case.seq, trainer=case.trainer,
        optimizer=case.optimizer, device=device, rehearsal=asked,
    )  # fmt: skip
    training = RankTraining(assignment, checked(assignment, 1))

    def once(mark: Mark) -> None:
        phase = [""]

        def told(name: str) -> None:
            mark(phase[0] or "other")
            phase[0] = "" if name == BETWEEN else name

        training.clock.watcher = told
        training.step()

    return once
