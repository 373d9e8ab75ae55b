"""Answers that measure: this machine, its layers, and runs."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import MAYBE, AnswerForm
from foretell.cost.samples import MeasuredMachine
from foretell.cost.samples import SampleFit as Fitted
from foretell.oracle.blame import Blame
from foretell.oracle.contribution import ContributedRow
from foretell.oracle.goodput import CheckpointedJob, Goodput
from foretell.runtime.assignment import Collective, Held
from foretell.runtime.comparison import Comparison
from foretell.runtime.measure import Measurement
from foretell.runtime.restart_log import RestartLog
from foretell.runtime.script_report import GroupTraffic


class CalibrateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine does."""

    record: str  # the file
    machine: MeasuredMachine
    samples: int
    complete: bool
    fits: dict[str, Fitted]  # by kernel: how far single samples are from the others
    failed: dict[str, str]  # probes that did not run, and why


class Profiled(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the layers of a model."""

    record: str  # the file
    model: str
    batch: int
    device: str
    layers: dict[str, dict[str, float]]  # by path, then by pass
    forward: float
    backward: float
    update: float
    peak_bytes: float
    gamma: float  # share of the sum over layers


class RunAnswer(Measurement, frozen=True, kw_only=True):
    """A run that was measured."""

    comparison: Comparison | msgspec.UnsetType = MAYBE  # with --compare


class RehearseAnswer(Measurement, frozen=True, kw_only=True):
    """Ranks of a run that ran alone."""

    comparison: Comparison
    unseen: tuple[str, ...]  # what no rehearsal shows
    why: str  # shallower models stand for it; empty: they do not


class ScriptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A training script that ran as one rank of many."""

    script: str
    arguments: tuple[str, ...]
    rank: int
    ranks: int
    cluster: str
    recognised: str  # the plan that its messages look like; empty: none
    step_seconds: float
    steps: tuple[float, ...]  # seconds from step to step of its optimizer
    collectives: tuple[GroupTraffic, ...]  # of one step
    gradients: int  # bytes that the rank keeps of them
    allocated: int  # bytes of tensors at the fullest moment
    resting: int
    reserved: int  # 0 on a processor
    alive: tuple[Held, ...]  # what a step had made of a GPU's memory when it was fullest
    device: str
    versions: dict[str, str]
    record: str
    unseen: tuple[str, ...]  # what no rehearsal shows


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank would say to the others."""

    plan: str
    ranks: int
    batch: int
    dry_run: bool
    collectives: tuple[Collective, ...]
    unexpected: tuple[Collective, ...]  # ran, not predicted
    missing: tuple[Collective, ...]  # predicted, did not run


class GoodputAnswer(Goodput, frozen=True, kw_only=True):
    """What failures and checkpoints leave of a run."""

    measured: RestartLog | msgspec.UnsetType = MAYBE  # of a record
    job: CheckpointedJob | msgspec.UnsetType = MAYBE  # of a model on a cluster


class ContributeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Measured steps as rows that anybody may have."""

    rows: tuple[ContributedRow, ...]


FORMS = (
    AnswerForm("calibrate", CalibrateAnswer, "what was measured of this machine"),
    AnswerForm("profile", Profiled, "seconds of the layers of a model"),
    AnswerForm("run", RunAnswer, "a measured run: the same shape as a prediction"),
    AnswerForm("rehearse", RehearseAnswer, "ranks of a large run that ran alone, beside the prediction"),
    AnswerForm("rehearse --script", ScriptAnswer, "a training script that ran as one rank of many"),
    AnswerForm("run --dry-run", DryRun, "collectives of one rank"),
    AnswerForm("compare", Comparison, "a prediction subtracted from a run"),
    AnswerForm("blame", Blame, "what traces of real steps lose, and to whom"),
    AnswerForm("contribute", ContributeAnswer, "measured steps of yours as anonymous rows"),
    AnswerForm("goodput", GoodputAnswer, "what failures and checkpoints leave of a run"),
)
