# pyright: basic
"""One rank of a run among others that are not there: the same appliers, the same steps, and messages that take their
time and move nothing."""

from __future__ import annotations

import functools
import os

import torch
import torch.distributed as dist

from foretell.hardware.kept_memory import keep_memory
from foretell.plan.setting import Setting
from foretell.runtime import message_prices
from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.exposed import tell_exposed
from foretell.runtime.rehearsal import here
from foretell.runtime.rehearsed_world import RehearsedWorld, at_once, begun
from foretell.runtime.training import RankTraining, trained

CONNECTIONS = 32
"""Queues of the GPU. Of the eight that there are by default a stream on which messages sleep would now and then share
one with a stream that computes, which then waits, too."""


def reported(assignment: Assignment, asked: Rehearsal, setting: Setting) -> Report:
    """What the rank has seen."""
    # others compute as this machine does
    found = message_prices.of_rank(setting, here(assignment, asked), asked.rank, asked.calibration)
    price = (lambda one: found.seconds(one.kind, one.ranks, one.payload)) if asked.priced else at_once
    if assignment.device == "cuda":
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", f"{CONNECTIONS}")
        torch.cuda.set_device(0)  # whatever the number of the rank is
    else:
        keep_memory()  # as ranks of a run do
    begun(asked.rank, setting.plan.ranks)
    world = RehearsedWorld(price, found.arrivals if asked.priced else {}).enter()
    after = functools.partial(tell_exposed, world=world) if assignment.device == "cuda" else _nothing
    report, _ = trained(assignment, setting, asked.rank, after=after)
    dist.destroy_process_group()  # nobody is there to take leave of
    return report


def _nothing(training: RankTraining) -> None:
    """The clock was told of waits as they passed."""
