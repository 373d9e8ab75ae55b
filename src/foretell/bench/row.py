"""One line of a comparison: an engine on a task with so many ranks and a seed, and what came of it, or why nothing did.

Seconds, bytes and shares. What a row does not know is empty, and `status` says why: a hole is a row with a reason.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec

OK = "ok"
ABSENT = "not installed"  # the row's fix installs it
UNFIT = "cannot run"  # here, or with this model: the row says why
FAILED = "failed"  # it began, and ended with an error


Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Some: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Figure: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]


class LearningPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A look at held-out data while it trained."""

    step: Count
    epoch: Figure
    seconds: Seconds  # of training; looks are not among them
    loss: Figure
    metric: Figure | None  # share of right answers
    perplexity: float | None = None  # of sequences of tokens

    @property
    def minutes(self) -> float:
        return self.seconds / 60.0


class PredictedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the oracle says of the same plan on the same machine."""

    step_seconds: Seconds
    low_seconds: Seconds
    high_seconds: Seconds
    memory_bytes: Figure
    breakdown: dict[str, Figure]
    error: Figure  # of the step: predicted less measured, as a share of what was measured
    memory_error: Figure | None  # None: no memory was measured
    calibrated: bool | None = None  # whether the machine was; None: nobody wrote it down


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, task, number of ranks and seed."""

    # what was asked
    engine: str
    pair: str  # of a model and a task
    ranks: Some
    seed: int
    batch_rule: str
    fingerprint: str = ""  # of the question
    conditions: str = ""  # what else was asked than the pair says, in words: others are not compared with these

    # what it meant
    title: str = ""  # the engine in words
    synchronous: bool = True  # each step is that of one process: the first losses are the same
    model: str = ""
    task: str = ""
    plan: str = ""  # in foretell's grammar: what the engine does
    trainer: str = ""
    device: str = ""
    precision: str = ""
    batch: Count = 0  # samples of a step, of all ranks
    microbatches: Some = 1
    optimizer: str = ""
    rate: Figure = 0.0
    warmup: Count = 0  # steps
    epoch_samples: Count = 0
    steps: Count = 0  # that were measured
    settings: dict[str, str] = {}  # the engine's own
    versions: dict[str, str] = {}  # of the engine, torch and Python

    # what came of it
    status: str = OK
    reason: str = ""
    fix: str = ""
    step_seconds: Seconds = 0.0  # median of the slowest rank's
    low_seconds: Seconds = 0.0  # one step in ten is faster
    high_seconds: Seconds = 0.0  # one in ten is slower
    phases: dict[str, Figure] = {}  # of the rank that works most; they add up to the step
    phases_by_rank: dict[str, Annotated[tuple[Figure, ...], msgspec.Meta(min_length=1)]] = {}
    memory_by_rank: tuple[Count, ...] = ()  # bytes of tensors at the fullest moment
    losses: tuple[float, ...] = ()  # of every step from the first
    curve: tuple[LearningPoint, ...] = ()
    target: float | None = None  # of the metric
    predicted: PredictedRow | None = None
    unpredicted: str = ""  # why there is no prediction

    # when and where
    created: str = ""  # UTC, ISO 8601
    wall_seconds: Seconds = 0.0  # of all of it, with the start of the processes
    load: Figure = 0.0  # of the machine, when it began
    busy: float | None = None  # cores that others kept busy just before it began; None: nobody looked
    node: Count = 0  # ranks of a host, where there were several hosts; 0: all ranks were on one

    @property
    def ok(self) -> bool:
        return self.status == OK

    @property
    def steps_per_epoch(self) -> float:
        return self.epoch_samples / self.batch if self.batch else 0.0

    @property
    def epoch_seconds(self) -> float:
        """Seconds in which all samples of the task are seen once."""
        return self.step_seconds * self.steps_per_epoch

    @property
    def samples_per_second(self) -> float:
        return self.batch / self.step_seconds if self.step_seconds else 0.0

    @property
    def memory_bytes(self) -> int:
        """Of the fullest rank."""
        return max(self.memory_by_rank, default=0)

    @property
    def mean_memory_bytes(self) -> float:
        """Over all ranks: stages of a pipeline hold more or less than each other."""
        return sum(self.memory_by_rank) / len(self.memory_by_rank) if self.memory_by_rank else 0.0

    @property
    def communication_share(self) -> float:
        """The part of a step in which the rank that works most stands still for others, pipelines' bubbles apart."""
        exposed = sum(seconds for name, seconds in self.phases.items() if name.startswith("exposed"))
        return exposed / self.step_seconds if self.step_seconds else 0.0

    @property
    def target_seconds(self) -> float | None:
        """Seconds of training to the first look at which the target was reached; None: it never was."""
        if self.target is None:
            return None
        reached = (one.seconds for one in self.curve if one.metric is not None and one.metric >= self.target)
        return next(reached, None)


FIGURES = (
    "epoch_seconds", "samples_per_second", "memory_bytes", "mean_memory_bytes", "communication_share", "target_seconds",
)  # fmt: skip
"""What follows from a row, told with it."""


def told(row: BenchRow) -> dict[str, object]:
    """A row with all that follows from it, as one object of JSON."""
    figures = {name: getattr(row, name) if row.ok else None for name in FIGURES}
    return {**msgspec.to_builtins(row), "engine": row.engine.replace("_", "-"), **figures}


ANOTHER_PLAN = re.compile(r"--plan '[^']*'(, or |; )?")


def advice(fix: str) -> str:
    """What would help a row that did not run. Another plan is no help: the plan is the engine's."""
    return ANOTHER_PLAN.sub("", fix).removesuffix("; ")
