# pyright: basic
"""A rank among others: it joins the group, does its assignment, and leaves cleanly."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from foretell.errors import BadInput
from foretell.hardware import this_machine
from foretell.hardware.kept_memory import keep_memory
from foretell.model.optimizer import optimizer
from foretell.plan.plan import Plan
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal, refused
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.program.expand import expand
from foretell.program.lower import lower
from foretell.runtime import appliers, checkpoints, dry_run
from foretell.runtime.appliers.offload import shares_weights
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.collectives import AlgorithmChoice, chosen
from foretell.runtime.compute_emulation import emulated
from foretell.runtime.memory_check import without_room
from foretell.runtime.methods import choice
from foretell.runtime.place import RankPlace
from foretell.runtime.rank_rendezvous import PATIENCE
from foretell.runtime.training import trained

FAREWELL = 10.0
"""Seconds in which all ranks come through a barrier that one of them is through."""


def checked(assignment: Assignment, here: int = 0, sharing: int = 0) -> Setting:
    """The setting of an assignment that can run: one that is legal, whose every part has an applier, and for which this
    machine has room and devices: `here` are the ranks that are started with it, and not by somebody else; `sharing`
    those on its GPUs, whoever started them."""
    setting = assignment.setting
    if assignment.collectives and chosen(assignment.collectives) and assignment.device == "cuda":
        raise BadInput("collectives of our own are between host processors", where="--collectives", fix="--device cpu")
    _check_looks(assignment)
    assignment.disturbance.check(setting.plan.ranks)
    alone = assignment.rehearsal is not None or assignment.dry
    missing = (*appliers.refusals(setting, alone), *_of_method(assignment, setting), *_of_whole_weights(setting))
    missing += tuple(_of_hosted(assignment, setting))
    hollow = assignment.rehearsal is not None and assignment.rehearsal.hollow
    if assignment.device == "cpu" and not assignment.dry and not hollow:
        missing += tuple(Refusal("room", why, fix) for why, fix in without_room(setting, here))
    if assignment.device == "cuda" and not assignment.dry and max(here, sharing) > this_machine.gpus():
        missing += tuple(_of_shared_gpus(setting, max(here, sharing)))
    if assignment.checkpoints:
        missing += tuple(checkpoints.refusals(setting, assignment.method))
    if assignment.dry:
        missing += tuple(Refusal("dry run", why, fix) for why, fix in dry_run.refusals(setting))
    if missing:
        raise refused(setting.plan, missing)
    if assignment.collectives:
        _check_collectives(chosen(assignment.collectives), setting)
    if assignment.checkpoints and not assignment.dry:
        checkpoints.made(assignment.checkpoints)
    return setting


def _check_collectives(choice: AlgorithmChoice, setting: Setting) -> None:
    """Refuse an algorithm whose number does not go with every group of ranks that sums something."""
    program = expand(lower(setting))
    messages = [message for one in program.kinds for message, _ in program.communications(one)]
    groups = {message.ranks for message in messages if message.kind == "all-reduce"}
    for ranks in sorted({setting.plan.ranks, *groups}):
        choice.check(ranks)


def _check_looks(assignment: Assignment) -> None:
    """Refuse looks at the noise of gradients that nobody would get to see."""
    every, steps = assignment.noise_every, assignment.steps
    if every and assignment.waits:
        raise BadInput("ranks that wait compute no gradients", where="--noise-every", fix="without --waits")
    if every and assignment.dry:
        raise BadInput("a dry run has no gradients to look at", where="--noise-every", fix="without --dry-run")
    if every > steps:
        what = f"{steps} steps end before the first look, after {every}"
        raise BadInput(what, where="--noise-every", fix=f"--noise-every {max(1, steps // 2)}, or --steps {2 * every}")


def _of_method(assignment: Assignment, setting: Setting) -> Iterator[Refusal]:
    """Why an algorithm that was named beside the plan does not run, or what does not go with one."""
    found = choice.method(setting.plan, assignment.method)
    if found is None and assignment.method:
        why = f"{assignment.method} merges versions of the weights, and under {setting.plan} there is one"
        fix = f"--method {assignment.method} --ranks {max(2, setting.plan.ranks)}, without --plan"
        yield Refusal(appliers.RULE, why, fix)
    elif found is not None:
        named = choice.refusals(found) if assignment.method else ()
        yield from (Refusal(appliers.RULE, why, fix) for why, fix in named)
        if assignment.dry or assignment.traced:
            option = "--dry-run" if assignment.dry else "--trace"
            why = f"{option} watches one step, and ranks of {found.text} have no step in common"
            yield Refusal(appliers.RULE, why, f"without {option}")
        if assignment.warmup:
            why = f"--warmup is for ranks that step together, and those of {found.text} do not"
            yield Refusal(appliers.RULE, why, "a smaller --rate, without --warmup")
        if assignment.noise_every:
            why = f"--noise-every looks at one model, and ranks of {found.text} have one each"
            yield Refusal(appliers.RULE, why, "dp2, or without --noise-every")


def _of_hosted(assignment: Assignment, setting: Setting) -> Iterator[Refusal]:
    """Gradients of weights that lie in host memory lie there too, and NCCL sums what lies on GPUs."""
    several = setting.plan.ranks > 1 and not shares_weights(setting)
    if setting.plan.policy(Offload).weights and several and assignment.device == "cuda":
        why = "+offload:weights on several GPUs: gradients lie in host memory, where NCCL sums nothing"
        yield Refusal(appliers.RULE, why, "dp:zero3, where FSDP2 sums them before")


BY_GLOO = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast")
"""What gloo does with tensors of a GPU: all of these ran on an H200 with torch 2.11 (studies/h200_runs), and a send
ended the process."""


def _of_shared_gpus(setting: Setting, here: int) -> Iterator[Refusal]:
    """NCCL wants a GPU for each rank. Ranks that share one talk by gloo."""
    program = expand(lower(setting))
    kinds = {message.kind for one in program.kinds for message, _ in program.communications(one)}
    for kind in sorted(kinds.difference(BY_GLOO)):
        why = f"{here} ranks share {this_machine.gpus()} GPUs and talk by gloo, which has no {kind} of GPU tensors"
        yield Refusal(appliers.RULE, why, f"dp{here}, or --device cpu")


CUT = ("tp", "filter", "channel")
"""Strategies whose ranks have shares of a weight that do not know of each other."""


def _of_whole_weights(setting: Setting) -> Iterator[Refusal]:
    """A share of a weight is shorter than the weight is, and a share of a matrix is another matrix."""
    name = setting.job.optimizer
    found = optimizer(name)
    if not found.needs_whole:
        return
    needs = f"{name} needs {'whole matrices' if found.needs_matrices else 'the norm of whole weights'}"
    for axis in setting.plan.axes:
        if axis.word in CUT and axis.world > 1:
            why = f"{needs}, and ranks of {axis.word}{axis.ranks} have shares"
            yield Refusal(appliers.RULE, why, "--optimizer adamw or momentum, or dp")
    data = setting.plan.axis(Data)
    if data is not None and data.world > 1:
        for what in _shares(data, setting.plan, found.needs_matrices):
            yield Refusal(appliers.RULE, f"{needs}, and {what}", "--optimizer adamw or momentum, or dp:zero1")


def _shares(data: Data, plan: Plan, matrices: bool) -> Iterator[str]:
    """Where an optimizer under data parallelism sees shares that do not know of each other: copies of a share are
    plain tensors, and so are the experts of a rank. Shares of FSDP2 know their norm, but are no matrices."""
    copies = plan.policy(Precision).format.master or plan.policy(Offload).optimizer
    if data.storage in ("zero2", "zero3") and matrices:
        yield f"beside {data.storage} ranks have shares"
    elif data.storage in ("zero2", "zero3") and copies:
        yield f"beside {data.storage} master weights and those on the host are copies of shares"
    if data.experts > 1:
        yield f"ranks of ep{data.experts} have some of the experts"


def begun(device: str, place: RankPlace, store: Any = None) -> None:
    """Join the group: by a store, or by the addresses in the environment."""
    keep_memory()
    store = store or store_of_life(place)
    backend = _on_gpu(place) if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=PATIENCE)


def _on_gpu(place: RankPlace) -> str:
    """Take the GPU of this rank, and say how it talks to others: NCCL has one rank on a GPU; gloo takes tensors of
    those that share one through host memory."""
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(place.local % gpus)
    return "nccl" if _sharing(place, gpus) <= gpus else "gloo"


def _sharing(place: RankPlace, gpus: int) -> int:
    """Ranks that share the GPUs that this one sees: Slurm may let each task see one of its own."""
    return 1 if place.by_srun and gpus == 1 else place.here


def store_of_life(place: RankPlace) -> Store:
    """The store that the environment names; torchrun's, after a restart, still has the addresses of the dead."""
    store, _, _ = next(rendezvous("env://", place.rank, place.world, timeout=PATIENCE))
    return PrefixStore(f"life {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def by_own(collectives: str) -> None:
    """Have collectives done by an algorithm of our own, where one is named."""
    if collectives:
        from foretell.runtime.collectives._torch import InstalledKernels

        _INSTALLED.append(InstalledKernels(chosen(collectives)))


_INSTALLED: list[object] = []
"""Kernels live as long as whoever made them."""


def take_part(assignment: Assignment, place: RankPlace) -> tuple[Report, ...]:
    """Be one of the ranks that somebody else started. Rank 0 gets all reports, the others none."""
    setting = checked(assignment, sharing=_sharing(place, this_machine.gpus()))
    if assignment.collectives:
        what = "collectives of our own join ranks that this command starts"
        raise BadInput(what, where="--collectives", fix="without torchrun or srun")
    begun(assignment.device, place)
    with emulated(assignment, place.rank):
        report, _ = trained(assignment, setting, place.rank)
    gathered: list[Any] = [None] * place.world
    dist.gather_object(report, gathered if place.rank == 0 else None)
    return tuple(gathered) if place.rank == 0 else ()


def leave(code: int = 0) -> NoReturn:
    """End this process at once: on the long way out gloo's threads abort one process in twelve.

    Nobody ends before all have told the store that they are through the barrier: the end of a rank closes what others
    still listen to.
    """
    if code == 0 and dist.is_initialized():
        dist.barrier()
        _await_others()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _await_others() -> None:
    store: Any = dist.distributed_c10d._get_default_store()
    until = time.monotonic() + FAREWELL
    store.add("left", 1)
    while store.add("left", 0) < dist.get_world_size() and time.monotonic() < until:
        time.sleep(0.005)
