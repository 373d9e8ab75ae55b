# pyright: basic
"""One rank's run of an assignment: build, apply the plan, train, watch one step closely, measure the others."""

from __future__ import annotations

import functools
import gc
import itertools
import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from statistics import median

import torch
import torch.distributed as dist

from foretell.errors import BadInput
from foretell.plan.job import micro_batch
from foretell.plan.setting import Setting
from foretell.runtime import appliers, journal, mesh
from foretell.runtime.assignment import Assignment, Happening, HeldOutCheck, Report
from foretell.runtime.checkpoints import Checkpoints, RankProgress
from foretell.runtime.clock import Clock
from foretell.runtime.compute_emulation import updated
from foretell.runtime.counting import Counting
from foretell.runtime.gradient_noise import GradientNoise
from foretell.runtime.held_out import HeldOut
from foretell.runtime.hollow import fill
from foretell.runtime.memory import Watched
from foretell.runtime.methods.choice import method
from foretell.runtime.models import RunnableModel, model_of
from foretell.runtime.optimizer import mark_hidden, torch_rule
from foretell.runtime.place import bound, place
from foretell.runtime.rehearsed_world import begin_step
from foretell.runtime.skewed import batches_of
from foretell.runtime.subject import Driver, Subject, TorchOptimizer
from foretell.runtime.tasks import Batch, Task, task
from foretell.runtime.tracing import exposed_seconds, idle_share
from foretell.runtime.waiting import told
from foretell.runtime.watching import Watching

Apply = Callable[[Subject], None]
"""Puts a plan on a subject."""


def rule_of(assignment: Assignment, setting: Setting) -> TorchOptimizer:
    """The optimizer of an assignment: its rate grows with the batch, where somebody said which batch it is for."""
    times = setting.job.batch / assignment.rate_batch if assignment.rate_batch else 1.0
    return torch_rule(setting.job.optimizer, assignment.rate, times)


def _threads(assignment: Assignment, ranks: int) -> int:
    """A rank of a processor is one core; beside a GPU a rank has its share of them, for what is left to the host."""
    if assignment.device != "cuda":
        return 1
    cores, here = len(os.sched_getaffinity(0)), place()
    if assignment.seat is not None:
        sharing = 1 if assignment.seat.bound else assignment.seat.here
    elif here is not None:
        sharing = 1 if bound(here, cores) else here.here
    else:
        sharing = 1 if assignment.rehearsal is not None else ranks
    return max(1, cores // sharing)


def warmed(step: int, steps: int) -> float:
    """The share of the rate at a step, counted from 0: it rises in a line over so many steps (Goyal et al. 2017)."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


class RankTraining:
    """A subject under its plan, with its data. What puts the plan on it is ours, unless somebody else's is given."""

    def __init__(self, assignment: Assignment, setting: Setting, apply: Apply = appliers.apply) -> None:
        torch.set_num_threads(assignment.threads or _threads(assignment, setting.plan.ranks))
        self.assignment, self.setting = assignment, setting
        self.foreign = apply is not appliers.apply
        self.device = torch.device(assignment.device)
        self.hollow = assignment.rehearsal is not None and assignment.rehearsal.hollow
        self.mesh = mesh.made(setting.plan, self.device.type, assignment.alone)
        torch.manual_seed(assignment.seed)  # whoever makes numbers makes the same ones on every rank
        self.model = model_of(assignment, setting)
        self.task = task(assignment.task)
        self.batches = _data(self.task, assignment, self.model)
        if assignment.rehearsal is not None and self.device.type == "cuda":
            # fetching is no part of a plan: it lies where a loader that runs ahead would have put it
            self.batches = itertools.repeat(next(self.batches).to(self.device))
        self.memory = Watched(self.device)  # data is not what is asked about
        self.subject = self._subject(self.model)
        if self.foreign:
            appliers.in_precision(self.subject)  # beneath the framework's wrapper, so that products are alike
        apply(self.subject)
        if assignment.forward:
            for part in self.subject.parts:
                part.eval()
        if self.hollow:
            fill(self.subject)
        gc.collect()  # stages of other ranks, and weights that were cut, hold each other
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what the whole model took is no part of what a step makes the allocator reserve
        self.driver: Driver = self.subject.driver(self.subject)
        own = [] if assignment.forward else self.subject.weights()
        self.optimizer = self.subject.optimizer(self.subject.rule, own)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.steps = 0
        self.clock = Clock(self.device)

    @functools.cached_property
    def held_out(self) -> HeldOut:
        return HeldOut(self.model, self.task, self.subject)

    @functools.cached_property
    def noise(self) -> GradientNoise:
        return GradientNoise(self.model, self.task, self.subject, self.assignment.seed)

    def _subject(self, found: RunnableModel) -> Subject:
        """The model as it is on one rank alone: the same weights on every rank, whatever becomes of them."""
        torch.manual_seed(self.assignment.seed)
        where = torch.device("meta") if self.hollow else self.device
        module = found.build(where).to(where)
        mark_hidden(module, self.setting.graph)
        rows = micro_batch(self.setting.job, self.setting.plan)
        sample = Batch(tuple(one[:rows].to(self.device) for one in found.like.inputs), found.like.target[:rows])
        update = rule_of(self.assignment, self.setting)
        alone = self.assignment.rehearsal is not None
        return Subject(self.setting, self.mesh, self.device, [module], sample, found.loss, update, rehearsed=alone)

    def step(self) -> float | None:
        """One step; the mean loss of this rank's samples, where it sees them."""
        clock = self.clock
        self._warm_up()
        with clock.step():
            begin_step(self.device)  # what others send is on its way from here on, and nobody waits for all of it
            with clock.phase("input"):
                batch = next(self.batches)
                for share in self.subject.shares:
                    batch = share(batch)
                batch = batch.to(self.device)
            with torch.set_grad_enabled(not self.assignment.forward):
                losses = self.driver.run(batch, clock)
            if not self.assignment.forward:
                self._update()
        loss = torch.stack(losses).mean().item() * self.subject.weight if losses else None
        rehearsed = self.assignment.rehearsal is not None and loss is not None and not math.isfinite(loss)
        if rehearsed or (self.assignment.waits and loss is not None):
            loss = 0.0  # of what nobody computed, or of messages that moved nothing and weights that are noise
        journal.here().stepped(clock.last(finite(loss)))
        return loss

    def _update(self) -> None:
        """What is done with the gradients of a step."""
        if self.subject.settles:
            with self.clock.phase("exchange"):
                for settle in self.subject.settles:
                    settle()
        with self.clock.phase("optimizer"):
            updated(self.optimizer.step)
            self.optimizer.zero_grad()

    def _warm_up(self) -> None:
        if self.steps < self.assignment.warmup:
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * warmed(self.steps, self.assignment.warmup)
        self.steps += 1


def finite(loss: float | None) -> float | None:
    """The loss; one that is no number any more ends the run."""
    if loss is not None and not math.isfinite(loss):
        rank = dist.get_rank() if dist.is_initialized() else 0
        what = f"the loss of rank {rank} is {loss}: training diverged"
        raise BadInput(what, fix="a smaller --rate, or +bf16 in the place of +fp16")
    return loss


def trained(
    assignment: Assignment,
    setting: Setting,
    rank: int,
    apply: Apply = appliers.apply,
    after: Callable[[RankTraining], None] = lambda training: None,
) -> tuple[Report, dict[str, torch.Tensor]]:
    """Do an assignment; what was seen, and the weights if they are wanted. `after` its measured steps something may be
    done yet."""
    own_pace = method(setting.plan, assignment.method)
    if own_pace is not None:
        from foretell.runtime.methods import training as methods  # which is made of what is here

        return methods.trained(assignment, setting, rank, own_pace)
    training = RankTraining(assignment, setting, apply)
    if assignment.validate_every:
        _ = training.held_out  # where nothing is held out, nobody trains first
    if assignment.noise_every:
        _ = training.noise
    kept = Checkpoints(assignment, rank) if assignment.checkpoints else None
    progress = (kept and _resumed(training, kept)) or _warmed(training)
    if kept:
        kept.began(len(progress.steps))
    _measured(training, kept, progress)
    if kept:
        kept.ended(assignment.steps)
    after(training)
    watched = _watched(training)
    weights = training.subject.whole_weights() if assignment.weights else {}
    report = Report(
        rank=rank,
        place=training.mesh.places,
        losses=[loss for loss in progress.losses if loss is not None],
        phases=training.clock.phases,
        busy=training.clock.busy,
        steps=training.clock.steps,
        checks=progress.checks,
        looks=progress.looks,
        epoch_samples=training.task.samples(training.model.like),
        trace=watched if assignment.traced else [],
        idle=idle_share(watched, median(training.clock.steps)),
        exposed={_works(training): exposed_seconds(watched)} if watched and _alone(training) else {},
        collectives=progress.collectives,
        allocated=progress.peak,
        resting=progress.resting,
        reserved=progress.reserved,
        alive=training.memory.alive,
        versions={"torch": str(torch.__version__), "python": platform.python_version()},
    )
    return report, weights


def _measured(training: RankTraining, kept: Checkpoints | None, progress: RankProgress) -> None:
    """The steps that are measured, with looks at what was learnt and checkpoints between them."""
    assignment, setting = training.assignment, training.setting
    with _waits(training):
        for at in range(len(progress.steps), assignment.steps):
            if kept:
                kept.step(at)
            progress.losses.append(training.step())
            if assignment.validate_every and (at + 1) % assignment.validate_every == 0:
                progress.checks.append(_checked(training, at + 1, progress.before))
            if assignment.noise_every and (at + 1) % assignment.noise_every == 0:
                done = assignment.dropped + at + 1
                progress.looks.append(training.noise.look(done, done * setting.job.batch))
            if kept and kept.due(at + 1):
                kept.write(at + 1, training.subject, training.optimizer, progress)


def _warmed(training: RankTraining) -> RankProgress:
    """Do the steps that are dropped, and watch the last of them closely; the clock is new then.

    Torch's compiler gives a function up for good that it meets while operators are counted. So they are counted in a
    step that is not compiled, and memory is that of the one before, where more than one is dropped.
    """
    apart = appliers.compiled(training.setting) and training.assignment.dropped > 1
    losses: list[float | None] = [training.step() for _ in range(training.assignment.dropped - (2 if apart else 1))]
    if apart:
        with training.memory.step(training.subject):
            losses.append(training.step())
    fullest = training.subject.fullest > 1
    counting = Counting(training.mesh, training.foreign, fullest)  # by now buckets lie as they will
    training.clock.watcher = functools.partial(setattr, counting, "phase")
    watched = torch.compiler.set_stance("force_eager") if apart else training.memory.step(training.subject)
    with counting, watched:
        losses.append(training.step())
    before, clock = sum(training.clock.steps), Clock(training.device)
    training.clock = clock
    return RankProgress(
        losses=losses,
        collectives=counting.found(),
        before=before,
        phases=clock.phases,  # the clock's own: they grow with it
        busy=clock.busy,
        steps=clock.steps,
        peak=training.memory.peak,
        resting=training.memory.resting,
        reserved=training.memory.reserved,
    )


def _resumed(training: RankTraining, kept: Checkpoints) -> RankProgress | None:
    """Go on from the last checkpoint, if there is one: what was read of the data is read past."""
    progress = kept.read(training.subject, training.optimizer)
    if progress is None:
        return None
    done = training.assignment.dropped + len(progress.steps)
    for _ in range(done):
        next(training.batches)
    training.steps = done
    clock = training.clock
    clock.phases, clock.busy, clock.steps = progress.phases, progress.busy, progress.steps
    journal.here().resumed(list(_ended(progress, training.assignment.dropped)))
    return progress


def _ended(progress: RankProgress, dropped: int) -> Iterator[journal.StepEnded]:
    """The steps of earlier lives as a journal has them; of those that are dropped only their sum was kept."""
    for loss in progress.losses[:dropped]:
        yield journal.StepEnded(progress.before / dropped, {}, loss)
    for at, (seconds, loss) in enumerate(zip(progress.steps, progress.losses[dropped:], strict=True)):
        yield journal.StepEnded(seconds, {name: times[at] for name, times in progress.phases.items()}, loss)


def _checked(training: RankTraining, steps: int, before: float) -> HeldOutCheck:
    """A look at held-out data after so many measured steps; those before them were learnt from too, and took time."""
    done = training.assignment.dropped + steps
    return training.held_out.check(done, done * training.setting.job.batch, before + sum(training.clock.steps))


def _waits(training: RankTraining) -> AbstractContextManager[None]:
    """What tells the clock of waiting, where a rank's thread waits itself."""
    if training.device.type != "cpu":
        return nullcontext()
    return told(training.clock, _works(training), training.mesh.groups())


def _works(training: RankTraining) -> str:
    """The axis along which weights are gathered and summed."""
    return next((name for name in ("shard", "dp", *training.mesh.sizes) if name in training.mesh), "")


def _alone(training: RankTraining) -> bool:
    """Whether a GPU's messages are all along one axis, so that what is exposed of them is that axis's. Of a rehearsal
    it is told already."""
    rehearsed = training.assignment.rehearsal is not None
    return training.device.type == "cuda" and len(training.mesh.sizes) == 1 and not rehearsed


def _watched(training: RankTraining) -> list[Happening]:
    """One more step under the profiler, where somebody wants to see it, or a GPU is to tell what it waits for."""
    alone = training.assignment.rehearsal is not None and training.device.type == "cuda"
    if not training.assignment.traced and not _alone(training) and not alone:
        return []
    measured, training.clock = training.clock, Clock(training.device)
    watching = Watching(training.device, training.clock)
    dist.barrier()
    with watching:
        training.step()
    training.clock = measured
    return watching.found


def _data(given: Task, assignment: Assignment, found: RunnableModel) -> Iterator[Batch]:
    """Batches to train on; the first is made at once, and with it all that they are made of."""
    why = given.unfit(found.like, found.classes)
    if why:
        raise BadInput(why, where="--task", fix="--task synthetic")
    row = batches_of(given, assignment, found)
    return itertools.chain([next(row)], row)
