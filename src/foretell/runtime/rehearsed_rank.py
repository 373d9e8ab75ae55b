# pyright: basic
"""One rank of a run among others that are not there: the same appliers, the same steps, and messages that take their
time and move nothing."""

from __future__ import annotations

import torch.distributed as dist

from foretell.plan.setting import Setting
from foretell.runtime import message_prices
from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.rehearsal import here
from foretell.runtime.rehearsed_world import RehearsedWorld, at_once, begun
from foretell.runtime.training import trained


def reported(assignment: Assignment, asked: Rehearsal, setting: Setting) -> Report:
    """What the rank has seen."""
    # others compute as this machine does
    found = message_prices.of_rank(setting, here(assignment, asked), asked.rank, asked.calibration)
    price = (lambda one: found.seconds(one.kind, one.ranks, one.payload)) if asked.priced else at_once
    begun(asked.rank, setting.plan.ranks)
    RehearsedWorld(price, found.arrivals if asked.priced else {}).enter()
    report, _ = trained(assignment, setting, asked.rank)
    dist.destroy_process_group()  # nobody is there to take leave of
    return report
