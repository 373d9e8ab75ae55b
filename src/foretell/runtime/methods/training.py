# pyright: basic
"""A rank that trains at its own pace: gradients of a real module, and an algorithm that says what becomes of them."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.distributed as dist

from foretell.errors import BadInput
from foretell.learning.members import Composed
from foretell.learning.vector import Vector
from foretell.plan.policies.compression import summed_rows
from foretell.plan.setting import Setting
from foretell.runtime import journal
from foretell.runtime.assignment import Assignment, Collective, HeldOutCheck, Report
from foretell.runtime.clock import Clock
from foretell.runtime.methods.choice import axis_of, round_of
from foretell.runtime.methods.mailbox import GlooMailbox, Letter
from foretell.runtime.methods.problem import Answers, RunProblem, soft_loss
from foretell.runtime.methods.worker_server import Alike, ServerSide, Terms, WorkerSide
from foretell.runtime.skewed import skew_of
from foretell.runtime.training import RankTraining, finite


class Module:
    """The weights of a subject as one vector, and gradients at any such vector."""

    def __init__(self, training: RankTraining) -> None:
        self._training, self._weights = training, training.subject.weights()
        self.shapes = tuple(tuple(weight.shape) for weight in self._weights)

    def read(self) -> Vector:
        return _flat([weight.detach() for weight in self._weights])

    @torch.no_grad()
    def write(self, vector: Vector) -> None:
        parts = torch.from_numpy(vector).split([weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.copy_(part.view_as(weight))

    def gradient(self) -> Vector:
        """What the last backward pass has left; there is none of it afterwards."""
        made = _flat([torch.zeros_like(one) if one.grad is None else one.grad for one in self._weights])
        self._training.optimizer.zero_grad()
        return made


def _flat(tensors: list[torch.Tensor]) -> Vector:
    return torch.cat([one.reshape(-1) for one in tensors]).cpu().numpy()


class OwnPace:
    """One rank: a worker, and perhaps a server beside it."""

    def __init__(self, assignment: Assignment, setting: Setting, method: Composed) -> None:
        self.training = RankTraining(assignment, setting)
        self.module = Module(self.training)
        self.post = GlooMailbox()
        axis = axis_of(setting.plan)
        assert axis is not None
        self.axis, rank = axis.word, dist.get_rank()
        rule = self.training.subject.rule.arguments
        steps = assignment.dropped + assignment.steps
        if steps < method.algorithm.least:
            what = (
                f"{method.text} ends after {method.algorithm.least} gradients at the least, and each rank makes {steps}"
            )
            raise BadInput(what, where="--steps", fix=f"--steps {method.algorithm.least - assignment.dropped}")
        if method.compressor is not None:
            method = method._replace(compressor=method.compressor.of_batch(summed_rows(setting)))
        self.terms = Terms(
            method,
            dist.get_world_size(),
            self.module.read(),
            self.module.shapes,
            rule["lr"],
            rule.get("momentum", 0.0),
            assignment.seed,
            steps,
            skew_of(assignment, self.training.model).amounts if assignment.skew else (),
            self._problem(),
        )
        self.server = ServerSide(self.terms, self.post, rank) if rank < self.terms.servers else None
        self.worker = self._worker(rank)
        self.worker.waited = self._waited
        slowness = assignment.disturbance.slowness(rank)
        self._tempo = (slowness * seconds for seconds in assignment.tempo.drawn(rank, assignment.seed))
        self.late = 0  # gradients that took longer than they were to take

    def _problem(self) -> RunProblem:
        (part,) = self.training.subject.parts
        return RunProblem(self.training.model, self.training.task, part, self.module.write)

    def _worker(self, rank: int) -> WorkerSide:
        if self.terms.method.topology.collective:
            return Alike(self.terms, self.post, rank, self.mean)
        return WorkerSide(self.terms, self.post, rank)

    def mean(self, vector: Vector) -> Vector:
        """Over all ranks, which are all here."""
        total = torch.from_numpy(vector.copy())
        start = time.perf_counter()
        dist.all_reduce(total, group=self.post.group)
        self.training.clock.waited(self.axis, time.perf_counter() - start)
        return (total / self.terms.workers).numpy()

    def _waited(self) -> Letter:
        """The next letter; the clock is told how long it was in coming."""
        start = time.perf_counter()
        found = self.post.worker.get()
        self.training.clock.waited(self.axis, time.perf_counter() - start)
        if isinstance(found, Exception):
            raise found
        return found

    def begin(self) -> None:
        if self.server is not None:
            self.server.start()
        dist.barrier(group=self.post.group)  # whoever is quick does not write to those who are not there yet
        self.worker.begin()

    def step(self) -> float:
        """One gradient, and what becomes of it until the next one can begin; the loss of its samples."""
        training, clock = self.training, self.training.clock
        begun = clock.read()
        with clock.step():
            with clock.phase("input"):
                batch = next(training.batches)
                for share in training.subject.shares:
                    batch = share(batch)
                batch = batch.to(training.device)
                if isinstance(self.worker.me.problem, Answers):  # it is a student now
                    batch, driver = self.worker.me.problem.of(batch), cast(Any, training.driver)
                    driver.loss = soft_loss
                self.module.write(self.worker.wanted)
            losses = training.driver.run(batch, clock)
            self._wait_until(begun + next(self._tempo))
            with clock.phase("optimizer"):
                self.worker.take(self.module.gradient())
        loss = finite(torch.stack(losses).mean().item())
        journal.here().stepped(clock.last(loss))
        assert loss is not None
        return loss

    def _wait_until(self, moment: float) -> None:
        """A gradient is made to take its time, where a tempo was asked for."""
        if not self.training.assignment.tempo.seconds:
            return
        left = moment - self.training.clock.read()
        self.late += left < 0
        time.sleep(max(0.0, left))

    def end(self) -> None:
        """Leave the others, and put the weights that count into the module: everywhere the same."""
        self.worker.end()
        if self.server is not None:
            self.server.end()
        self.module.write(self._handed_over())

    def _handed_over(self) -> Vector:
        if not self.terms.servers:
            return self._of_copies()
        weights = torch.from_numpy(self.terms.first.copy())
        for number, share in enumerate(self.terms.shares()):
            if self.server is not None and self.server.number == number:
                weights[share] = torch.from_numpy(self.server.server.weights)
            part = weights[share].contiguous()
            dist.broadcast(part, number, group=self.post.group)
            weights[share] = part
        return weights.numpy()

    def _of_copies(self) -> Vector:
        """What counts of copies: their mean, each its own, that of the first or of the best."""
        handed = self.terms.method.algorithm.handed
        if handed == "each":
            return self.worker.kept
        if handed == "mean":
            return self.mean(self.worker.kept)
        giver = self._best() if handed == "best" else 0
        weights = torch.from_numpy(self.worker.kept.copy())
        dist.broadcast(weights, giver, group=self.post.group)
        return weights.numpy()

    def _best(self) -> int:
        """The rank whose copy has the least loss on what was held out."""
        losses = torch.zeros(self.terms.workers, dtype=torch.float64)
        losses[self.worker.me.number] = self.terms.problem.judged([self.worker.kept]).loss
        dist.all_reduce(losses, group=self.post.group)
        return int(losses.argmin())


def trained(
    assignment: Assignment, setting: Setting, rank: int, method: Composed
) -> tuple[Report, dict[str, torch.Tensor]]:
    """Do an assignment at one's own pace; what was seen, and the weights if they are wanted."""
    found = OwnPace(assignment, setting, method)
    training = found.training
    if assignment.validate_every:
        _ = training.held_out
    found.begin()
    losses = [found.step() for _ in range(assignment.dropped - 1)]
    with training.memory.step(training.subject):
        losses.append(found.step())
    early, training.clock = training.clock, Clock(training.device)
    for _ in range(assignment.steps):
        if found.worker.done:
            break  # one that others learn from, when it has taught
        losses.append(found.step())
    found.end()
    report = Report(
        rank=rank,
        place=training.mesh.places,
        losses=losses,
        phases=training.clock.phases,
        busy=training.clock.busy,
        steps=training.clock.steps,
        checks=list(_checks(found, sum(early.steps))),
        collectives=_collectives(found, assignment.dropped),
        allocated=training.memory.peak,
        resting=training.memory.resting,
        versions={"torch": str(torch.__version__), "python": platform.python_version()},
        staleness={str(value): times for value, times in sorted(_staleness(found).items())},
        arrivals=found.server.arrivals if found.server else [],
        heard=found.worker.heard,
        paces=found.worker.paces(),
        served=found.server.served if found.server else [],
        returns=found.server.returns if found.server else [],
        late=found.late,
    )
    return report, training.subject.whole_weights() if assignment.weights else {}


def _staleness(found: OwnPace) -> Counter[int]:
    """As the server saw it; of copies that are averaged nobody can say."""
    return found.server.staleness if found.server else Counter()


def _checks(found: OwnPace, before: float) -> Iterator[HeldOutCheck]:
    """One look at held-out data, when all have made their last gradient: before, there is no one model to look at."""
    training = found.training
    if training.assignment.validate_every:
        steps = found.terms.gradients
        look = training.held_out.check if found.terms.method.algorithm.handed != "each" else training.held_out.together
        yield look(steps, steps * training.setting.job.batch, before + sum(training.clock.steps))


def _collectives(found: OwnPace, dropped: int) -> list[Collective]:
    """What travelled in one round: as many steps as it takes until everything has happened once."""
    steps = round_of(found.terms.method)
    first = max(0, min(dropped, found.terms.gradients - steps))
    seen: Counter[tuple[str, int]] = Counter()
    for (kind, size, clock), times in found.worker.travelled.items():
        if first < clock <= first + steps:
            seen[kind, size] += times
    axes, ranks = (found.axis,), found.terms.workers
    return sorted(Collective(kind, axes, ranks, size, times, "optimizer") for (kind, size), times in seen.items())
