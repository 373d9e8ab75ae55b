# pyright: basic
"""One rank of many that are not there: whether a plan builds and steps, and what it says to the others.

Torch's fake process group answers at once, whatever its size; tensors have shapes and no memory. So a plan for
thousands of ranks is tried on one machine in seconds. What a rank says does not depend on the answers.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from foretell.plan.facts import facts
from foretell.plan.job import micro_batch
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.schedule import find
from foretell.plan.setting import Setting
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.spatial import Spatial
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.runtime import appliers, mesh
from foretell.runtime.appliers._replicas import wrappers
from foretell.runtime.appliers.offload import shares_weights
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.clock import Clock
from foretell.runtime.counting import Counting
from foretell.runtime.memory_check import trained_bytes, without_room_for_all
from foretell.runtime.models import model_of
from foretell.runtime.subject import Driver, Subject
from foretell.runtime.tasks import Batch
from foretell.runtime.training import rule_of

CPU = torch.device("cpu")

STEPS = 3
"""Buckets lie as they will from the third step on."""


def refusals(setting: Setting) -> Iterator[tuple[str, str]]:
    """What waits for answers of other ranks, for numbers where there are shapes alone, or for more memory."""
    yield from _unanswered(setting)
    yield from without_room_for_all(setting) if _needs_memory(setting) else _without_numbers(setting)


def _unanswered(setting: Setting) -> Iterator[tuple[str, str]]:
    pipeline = setting.plan.axis(Pipeline)
    if pipeline is not None and pipeline.world > 1:
        schedule = find(pipeline.schedule)
        if not schedule.flushes:
            yield f"pp{pipeline.ranks}:{schedule.name} has no step that ends", "pp:1f1b, or no --dry-run"
    if setting.plan.policy(Compression).method != "none":
        yield "compressed gradients of other ranks are read, and in a dry run there are none", "no --dry-run"


def _without_numbers(setting: Setting) -> Iterator[tuple[str, str]]:
    plan, tried = setting.plan, "a dry run of this plan has shapes and no memory"
    precision = plan.policy(Precision)
    if precision.format.loss_scaling:
        why = f"+{precision.name} asks whether gradients are finite, and {tried}"
        yield why, "+bf16, dp without pp and zero3, or no --dry-run"
    if plan.policy(Offload).weights and not shares_weights(setting):
        why = f"+offload:weights moves weights, and {tried}"
        yield why, "dp:zero3, or no --dry-run"
    alone = shares_weights(setting) and all(axis.world == 1 for axis in plan.axes if not isinstance(axis, Data))
    if plan.policy(Execution).mode == "compiled" and not alone:
        why = f"+compiled makes kernels of what runs, and {tried}"
        yield why, "+eager, or no --dry-run"


def reported(assignment: Assignment, setting: Setting) -> Report:
    """Rank 0's step beside ranks that are not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=setting.plan.ranks)
    where = mesh.made(setting.plan, "cpu")
    found = model_of(assignment, setting)
    real = _needs_memory(setting)
    with nullcontext() if real else torch.device("meta"):
        module = found.build()
    rows, device = micro_batch(setting.job, setting.plan), "cpu" if real else "meta"
    sample = Batch(tuple(one[:rows].to(device) for one in found.like.inputs), found.like.target[:rows])
    update = rule_of(assignment, setting)
    # without DistributedDataParallel, the buckets that it begins with are summed
    subject = Subject(setting, where, CPU, [module], sample, found.loss, update, rehearsed=True, later=not real)
    appliers.apply(subject)
    counting = Counting(where, fullest=subject.fullest > 1)
    driver = subject.driver(subject)  # which asks the mesh for numbers, not shapes
    with nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True):
        if not real:
            subject.parts = [part.to_empty(device="cpu") for part in subject.parts]
        _step(subject, driver, found.like, counting)
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    return Report(rank=0, place=where.places, collectives=counting.found(), versions=versions)


SMALL = 1 << 30
"""Bytes of weights, gradients and states up to which a replica is tried with memory."""


def _needs_memory(setting: Setting) -> bool:
    """Whether tensors are really there. DistributedDataParallel reads what its buckets hold, and lays them anew; so it
    is tried itself where that costs little, and in the place of refusing what reads numbers."""
    pipeline = setting.plan.axis(Pipeline)
    if (pipeline is not None and pipeline.world > 1) or shares_weights(setting) or _shares_experts(setting):
        return False
    replicas = any(axis.world > 1 and _has_replicas(axis) for axis in setting.plan.axes)
    return any(True for _ in _without_numbers(setting)) or (replicas and trained_bytes(setting) <= SMALL)


def _has_replicas(axis: Strategy) -> bool:
    """Whether gradients are averaged along an axis."""
    return isinstance(axis, Data | Spatial | Context) or any(own.splitting.rest for own in axis.axes())


def _shares_experts(setting: Setting) -> bool:
    """Whether rows of experts come from ranks that are not there: they are counted, and have no values."""
    data, tensor = setting.plan.axis(Data), setting.plan.axis(Tensor)
    in_shares = (data is not None and data.experts > 1) or (tensor is not None and tensor.sequence)
    return in_shares and facts(setting.graph).experts > 0


def _answered(group, bucket):  # torch reads annotations, and cannot read those that are texts
    """The sum of a bucket as DistributedDataParallel asks for it; the fake group's own answer is none that it reads."""
    dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    found: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    found.set_result(bucket.buffer())
    return found


def _step(subject: Subject, driver: Driver, batch: Batch, counting: Counting) -> None:
    for share in subject.shares:
        batch = share(batch)
    for part in subject.parts:
        for wrapper in wrappers(part):
            wrapper.register_comm_hook(wrapper.process_group, _answered)
    clock = Clock(CPU)
    optimizer = subject.optimizer(subject.rule, subject.weights())
    for at in range(STEPS):
        clock.watcher = lambda phase: setattr(counting, "phase", phase)
        with counting if at + 1 == STEPS else nullcontext():
            driver.run(batch, clock)
            for settle in subject.settles:
                settle()
            with clock.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
