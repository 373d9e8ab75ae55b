"""Answers about a model, and about one plan for it."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from typing import Any

import msgspec

from foretell.cli.answers.form import MAYBE, AnswerForm
from foretell.cli.rank_figures import CommunicationRow
from foretell.model.analysis import Analysis
from foretell.oracle.alignment import Alignment
from foretell.oracle.anchored import AnchorFinding as Corrected
from foretell.oracle.capacity import Capacity
from foretell.oracle.changes import PlanChange
from foretell.oracle.energy import StepEnergy
from foretell.oracle.fit import Fit
from foretell.oracle.tuning import Tuning
from foretell.oracle.written import StepAnswer, WholeRun
from foretell.program.expanded import RankKind, StageMemory
from foretell.timeline.peak_breakdown import AliveTensors


class AxisAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of the mesh."""

    name: str
    ranks: int
    stride: int  # how far apart neighbours on it are
    level: str | msgspec.UnsetType = MAYBE  # the slowest level that it crosses, where a cluster is named
    link: str | msgspec.UnsetType = MAYBE


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of a stage that are alike."""

    name: str
    times: int
    forward: int  # which of the bodies
    backward: int


class StageProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage does, by numbers of bodies."""

    part: int
    layers: tuple[Layers, ...]
    enter: int  # before the first layer of a forward pass
    leave: int
    enter_back: int
    leave_back: int
    finish: int  # at the end of a step
    memory: StageMemory


class BodyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Actions one after the other."""

    phase: str
    actions: tuple[Any, ...]  # computations and messages, each with its type


class Communication(CommunicationRow, frozen=True, kw_only=True):
    """Communications of a step that are alike."""

    place: int  # of a rank on the pipeline


class ProgramAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The program of a plan."""

    model: str
    plan: str
    trainer: str
    optimizer: str
    cluster: str | None
    batch: int
    microbatches: int
    micro_batch: int  # samples that one rank takes at a time
    ranks: int
    axes: tuple[AxisAnswer, ...]
    kinds: tuple[RankKind, ...]  # ranks that do the same
    stages: tuple[StageProgram, ...]
    bodies: tuple[BodyAnswer, ...]  # each once, however often it runs
    communications: tuple[Communication, ...]
    notes: tuple[str, ...]


class PredictAnswer(StepAnswer, frozen=True, kw_only=True):
    """A step, and a whole run where one is asked about."""

    samples_per_second_per_gpu: float
    tokens_per_second_per_gpu: float  # 0 where samples are no sequences
    tflops_per_gpu: float  # by model flops
    mfu: float  # model flops over what all ranks could do in the step at the peak
    hfu: float  # the same with what runs again
    peak_tflops: float  # of one device, in the precision of the matrix products
    accumulation: int  # micro-batches that a rank takes one after the other in a step
    bubble_parts: dict[str, float]  # seconds: of the schedule, and of stages that are not equal
    training_seconds: float  # of a whole run; 0: none is asked about
    cost: float  # of the run, or of a step, at the price that is given
    energy: StepEnergy | None  # of the step; null on processors, of which no power was measured
    carbon_grams: float  # of CO2 in a step, at the intensity that is given; 0: none is
    alive: tuple[AliveTensors, ...]  # the largest tensors at the fullest moment
    changes: tuple[PlanChange, ...]  # what would fit, the smallest first; none where it fits
    findings: tuple[Corrected, ...] | msgspec.UnsetType = MAYBE  # what measurements corrected


class FitAnswer(Fit, frozen=True, kw_only=True):
    """Whether it fits, and with what."""

    prediction: StepAnswer
    training: WholeRun | None  # where one is asked about


FORMS = (
    AnswerForm("analyze", Analysis, "what a model needs, before any plan or cluster"),
    AnswerForm("program", ProgramAnswer, "what each rank computes, sends and holds"),
    AnswerForm("predict", PredictAnswer, "one step under a plan"),
    AnswerForm("align", Alignment, "a step of a method after pre-training, phase by phase"),
    AnswerForm("capacity", Capacity, "what a step holds in tensors, where no step has a time"),
    AnswerForm("fit", FitAnswer, "whether a model fits, and with which plan"),
    AnswerForm("fit --tuning", Tuning, "ways to fine-tune, from all weights to four bits"),
)
