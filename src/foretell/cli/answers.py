"""What each verb prints with `--json`, as types: `docs/json.md` is made of them, and tests hold real answers to them.

A verb whose answer is a value of the library has that value's type; one that adds keys has a type here that adds
them. Keys may be added, and keep their meaning once they are here. A new verb adds a `Form`.
"""

# pyright: reportIncompatibleVariableOverride=false
# What is written is wider than what is computed with: infinity is null, a refusal has no plans in it.

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from foretell.cli.config_change import Change as Rewritten
from foretell.cli.kept import Check
from foretell.cli.rank_figures import CommunicationRow
from foretell.cli.verbs.doctor import Finding
from foretell.cost.alive import Alive
from foretell.cost.samples import Fit as Fitted
from foretell.cost.samples import Machine
from foretell.dialects import Unsaid
from foretell.model.analysis import Analysis
from foretell.oracle.anchored import Finding as Corrected
from foretell.oracle.batches import Weighed
from foretell.oracle.changes import Change
from foretell.oracle.diff import Diff
from foretell.oracle.fit import Fit
from foretell.oracle.goodput import Goodput
from foretell.oracle.predict import Prediction
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.scale import Scaling
from foretell.oracle.search import Found
from foretell.oracle.similar import Accuracy
from foretell.oracle.training import Training
from foretell.oracle.whatif import WhatIf
from foretell.oracle.why import Why
from foretell.program.program import Memory, RankKind
from foretell.records.record import Record
from foretell.runtime.assignment import Collective
from foretell.runtime.comparison import Comparison
from foretell.runtime.lives import Lives
from foretell.runtime.measure import Measurement
from foretell.sweeping.sweep import Sweep
from foretell.taxonomy.advice import Advice
from foretell.taxonomy.systems import System
from foretell.taxonomy.updates import Update
from foretell.validation.constants import Constant
from foretell.validation.coverage import Coverage
from foretell.validation.evaluate import Scores
from foretell.validation.regret import Regrets
from foretell.virtual.again import Again
from foretell.virtual.batches import Measured
from foretell.virtual.delays import Delay
from foretell.virtual.simulate import OnSeveral, Simulation

MAYBE: Any = msgspec.UNSET
"""The default of a key that is there only where it has something to say."""


class Form(NamedTuple):
    """The answer of a command."""

    command: str  # a verb, with the options that change the answer's form
    type: Any
    says: str  # what the answer is, in a few words


# errors


class Broken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that a plan breaks."""

    rule: str  # a short stable name
    why: str  # the rule with its numbers
    way_out: str = ""  # what would work


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what would work."""

    what: str  # what is wrong, with its numbers
    where: str  # the option, argument, file or field; empty: the command as a whole
    fix: str  # what would work; empty: nothing is known to
    refusals: tuple[Broken, ...] | msgspec.UnsetType = MAYBE  # of a plan: every rule that it breaks


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the exit code is 2, or 130 where a person interrupted."""

    error: Problem


# one plan


class Axis(msgspec.Struct, frozen=True, kw_only=True):
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
    memory: Memory


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Actions one after the other."""

    phase: str
    actions: tuple[Any, ...]  # computations and messages, each with its type


class Communication(CommunicationRow, frozen=True, kw_only=True):
    """Communications of a step that are alike."""

    place: int  # of a rank on the pipeline


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
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
    axes: tuple[Axis, ...]
    kinds: tuple[RankKind, ...]  # ranks that do the same
    stages: tuple[StageProgram, ...]
    bodies: tuple[Body, ...]  # each once, however often it runs
    communications: tuple[Communication, ...]
    notes: tuple[str, ...]


class WholeRun(Training, frozen=True, kw_only=True):
    """A whole run. JSON has no infinity."""

    interval: float | None  # seconds of training between two checkpoints; null: none are written
    mtbf: float | None  # mean seconds between failures of the job; null: there are none


class Step(Prediction, frozen=True, kw_only=True):
    """A prediction of a step, and of a whole run where one is asked about."""

    training: WholeRun | None = None


class Predicted(Step, frozen=True, kw_only=True):
    """A step, and a whole run where one is asked about."""

    training_seconds: float  # of a whole run; 0: none is asked about
    cost: float  # of the run, or of a step, at the price that is given
    alive: tuple[Alive, ...]  # the largest tensors at the fullest moment
    changes: tuple[Change, ...]  # what would fit, the smallest first; none where it fits
    findings: tuple[Corrected, ...] | msgspec.UnsetType = MAYBE  # what measurements corrected


class Fits(Fit, frozen=True, kw_only=True):
    """Whether it fits, and with what."""

    prediction: Step
    training: WholeRun | None  # where one is asked about


# the search


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """One search of several."""

    cluster: str
    ranks: int
    batch: int
    evaluated: int
    fitting: int
    seconds: float
    complete: bool
    best: Candidate | None
    nearest: Candidate | None
    what: str | msgspec.UnsetType = MAYBE  # what was changed, of those that were tried because nothing fits
    training_seconds: float | msgspec.UnsetType = MAYBE
    in_time: bool | msgspec.UnsetType = MAYBE  # whether the deadline is met


class Planned(Found, frozen=True, kw_only=True):
    """The best plan, and what comes close."""

    notes: tuple[str, ...]
    headroom: float | msgspec.UnsetType = MAYBE  # share of usable memory that the best leaves free
    roomy: Candidate | msgspec.UnsetType | None = MAYBE  # the fastest plan that leaves a tenth of it free
    accuracy: Accuracy | msgspec.UnsetType | None = MAYBE  # of runs like the best plan
    today: Rewritten | msgspec.UnsetType = MAYBE  # with --from-config: what runs today, and the file of the best plan
    searches: tuple[Short, ...] | msgspec.UnsetType = MAYBE  # with --gpus: one for each number
    tried: tuple[Short, ...] | msgspec.UnsetType = MAYBE  # where nothing fits: what else was searched


class BatchPlanned(Found, frozen=True, kw_only=True):
    """The best batch, with its plan."""

    notes: tuple[str, ...]
    noise_scale: float  # samples
    least_samples: float  # to train on; 0: not given
    batches: tuple[Weighed, ...]
    choice: Weighed | None


class Explained(Why, frozen=True, kw_only=True):
    """Why a plan loses, and what would make it win."""

    refusals: tuple[Broken, ...]  # with their numbers
    notes: tuple[str, ...]


class Compared(Diff, frozen=True, kw_only=True):
    """Two plans side by side."""

    notes: tuple[str, ...]


class Changed(WhatIf, frozen=True, kw_only=True):
    """A step with one thing changed."""

    notes: tuple[str, ...]


# what is written, measured and kept


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was written."""

    file: str
    bytes: int
    title: str
    plan: str
    figures: tuple[str, ...]  # files of single figures


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration."""

    dialect: str
    plan: str
    trainer: str
    file: str  # its name, or where it was written
    text: str
    unsaid: tuple[Unsaid, ...]  # what the file has no words for, and where it goes
    launch: str  # the command or script that starts it
    notes: tuple[str, ...]


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine does."""

    record: str  # the file
    machine: Machine
    samples: int
    complete: bool
    fits: tuple[Fitted, ...]  # how far single samples are from the others
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


class Ran(Measurement, frozen=True, kw_only=True):
    """A run that was measured."""

    comparison: Comparison | msgspec.UnsetType = MAYBE  # with --compare


class Spent(Goodput, frozen=True, kw_only=True):
    """What failures and checkpoints leave of a run."""

    measured: Lives | msgspec.UnsetType = MAYBE  # of a record


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank would say to the others."""

    plan: str
    ranks: int
    batch: int
    dry_run: bool
    collectives: tuple[Collective, ...]
    unexpected: tuple[Collective, ...]  # ran, not predicted
    missing: tuple[Collective, ...]  # predicted, did not run


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Figure 14 of the taxonomy."""

    delays: tuple[Delay, ...]


class Travels(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends for one update of a model, by technique."""

    model: str
    updates: tuple[Update, ...]  # the plain gradient first


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page is, as soon as it answers."""

    url: str
    api: str  # its description
    pid: int


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are kept."""

    folder: str
    records: int
    rows: tuple[dict[str, Any], ...]  # by column
    unreadable: dict[str, str]  # files that are left out, and why


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of predictions, by study."""

    studies: tuple[Scores, ...]


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Constants that were chosen with measured runs in view."""

    constants: tuple[Constant, ...]


class StudyRegrets(Regrets, frozen=True, kw_only=True):
    """What following the predictions would have cost."""

    study: str


class RegretBoard(msgspec.Struct, frozen=True, kw_only=True):
    """Regret by study."""

    studies: tuple[StudyRegrets, ...]


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Whether kept predictions still hold."""

    checks: tuple[Check, ...]
    regressed: bool


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What is there and what is missing."""

    foretell: str  # its version
    python: str
    system: str
    findings: tuple[Finding, ...]


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for a shell."""

    shell: str
    file: str  # where they go
    text: str


FORMS: tuple[Form, ...] = (
    Form("analyze", Analysis, "what a model needs, before any plan or cluster"),
    Form("program", Lowered, "what each rank computes, sends and holds"),
    Form("predict", Predicted, "one step under a plan"),
    Form("fit", Fits, "whether a model fits, and with which plan"),
    Form("plan", Planned, "the best plan"),
    Form("plan --batch auto", BatchPlanned, "the best batch, and its plan"),
    Form("why", Explained, "why a plan loses to the best"),
    Form("diff", Compared, "where two plans differ"),
    Form("scale", Scaling, "strategies over numbers of GPUs"),
    Form("whatif", Changed, "a step with one thing changed"),
    Form("sweep", Sweep, "many answers, one a row"),
    Form("report", Reported, "the page that was written"),
    Form("export", Exported, "a trainer's configuration"),
    Form("serve", Serving, "where the page is; more answers come from its API"),
    Form("calibrate", Calibrated, "what was measured of this machine"),
    Form("profile", Profiled, "seconds of the layers of a model"),
    Form("run", Ran, "a measured run: the same shape as a prediction"),
    Form("run --dry-run", DryRun, "collectives of one rank"),
    Form("compare", Comparison, "a prediction subtracted from a run"),
    Form("goodput", Spent, "what failures and checkpoints leave of a run"),
    Form("simulate", Simulation, "algorithms by virtual time to a loss"),
    Form("simulate --on --on", OnSeveral, "the same on several clusters"),
    Form("simulate --batches", Measured, "steps to a loss over batches"),
    Form("simulate --fig14", Delays, "delays of an exchange"),
    Form("simulate --record", Again, "a run of real processes beside the same in virtual time"),
    Form("advise", Advice, "techniques by virtual time to a loss"),
    Form("systems", dict[str, System], "systems by name"),
    Form("systems --bytes", Travels, "what travels for an update of a model"),
    Form("systems --plan", dict[str, tuple[str, ...]], "classes of a plan, by axis of the taxonomy"),
    Form("results", Records, "records that are kept"),
    Form("results show", Record, "one record"),
    Form("validate", Scoreboard, "errors of predictions, by study"),
    Form("validate --regret", RegretBoard, "what following the predictions would have cost"),
    Form("validate --coverage", Coverage, "how often runs lie in their bands"),
    Form("validate --constants", Constants, "constants that were chosen with measured runs in view"),
    Form("check", Checks, "whether kept predictions still hold"),
    Form("doctor", Examined, "what is installed and found"),
    Form("completion", Completion, "lines for a shell"),
    Form("list", dict[str, Any], "the members of a kind, under the kind's name"),
    Form("describe", dict[str, Any], "`kind`, `name`, `title`, and the member under its kind's name"),
)
"""In the order of the verbs."""
