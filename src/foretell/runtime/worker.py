# pyright: basic
"""A rank among others: it joins the group, does its assignment, and leaves cleanly."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from foretell.hardware.kept_memory import keep_memory
from foretell.plan.refusal import Refusal, refused
from foretell.plan.setting import Setting
from foretell.runtime import appliers, dry
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.place import Place
from foretell.runtime.training import trained

PATIENCE = timedelta(seconds=300)
"""That ranks wait for each other in a collective before they give up."""


def checked(assignment: Assignment) -> Setting:
    """The setting of an assignment that can run: one that is legal, and whose every part has an applier."""
    setting = assignment.setting()
    missing = tuple(appliers.refusals(setting))
    if assignment.dry:
        missing += tuple(Refusal("dry run", why, fix) for why, fix in dry.refusals(setting))
    if missing:
        raise refused(setting.plan, missing)
    return setting


def begun(device: str, place: Place, store: Any = None) -> None:
    """Join the group: by a store, or by the addresses in the environment. A rank has the GPU of its number here."""
    keep_memory()
    backend, rank, world = "nccl" if device == "cuda" else "gloo", place.rank, place.world
    if device == "cuda":
        torch.cuda.set_device(place.local)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)


def take_part(assignment: Assignment, place: Place) -> tuple[Report, ...]:
    """Be one of the ranks that somebody else started. Rank 0 gets all reports, the others none."""
    setting = checked(assignment)
    begun(assignment.device, place)
    report, _ = trained(assignment, setting, place.rank)
    gathered: list[Any] = [None] * place.world
    dist.gather_object(report, gathered if place.rank == 0 else None)
    return tuple(gathered) if place.rank == 0 else ()


def leave(code: int = 0) -> NoReturn:
    """End this process at once: on the long way out gloo's threads abort one process in twelve."""
    if code == 0 and dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
