"""Answers of the search, and of what sets plans side by side."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.errors import BrokenRuleAnswer
from foretell.cli.answers.form import MAYBE, AnswerForm
from foretell.cli.config_change import ConfigChange as Rewritten
from foretell.oracle.batches import Weighed
from foretell.oracle.diff import Diff
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.scale import Scaling
from foretell.oracle.search import SearchResult
from foretell.oracle.similar import SimilarAccuracy
from foretell.oracle.whatif import WhatIf
from foretell.oracle.why import Why
from foretell.sweeping.sweep import Sweep


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


class PlanAnswer(SearchResult, frozen=True, kw_only=True):
    """The best plan, what it leaves free, and those beside it."""

    notes: tuple[str, ...]
    headroom: float | msgspec.UnsetType = MAYBE  # share of usable memory that the best leaves free
    roomy: Candidate | msgspec.UnsetType | None = MAYBE  # the fastest plan that leaves a tenth of it free
    accuracy: SimilarAccuracy | msgspec.UnsetType | None = MAYBE  # of runs like the best plan
    layouts: tuple[Candidate, ...] | msgspec.UnsetType = MAYBE  # the best plan of each mesh, as many as `top` has
    plainer: Candidate | msgspec.UnsetType | None = MAYBE  # the plainest that is as fast to a hundredth


class Planned(PlanAnswer, frozen=True, kw_only=True):
    """The best plan, and what comes close."""

    today: Rewritten | msgspec.UnsetType = MAYBE  # with --from-config: what runs today, and the file of the best plan
    searches: tuple[Short, ...] | msgspec.UnsetType = MAYBE  # with --gpus: one for each number
    tried: tuple[Short, ...] | msgspec.UnsetType = MAYBE  # where nothing fits: what else was searched


class BatchPlanned(PlanAnswer, frozen=True, kw_only=True):
    """The best batch, with its plan."""

    noise_scale: float  # samples
    noise_source: str  # what it was measured on; empty: it was given
    least_samples: float  # to train on; 0: not given
    batches: tuple[Weighed, ...]
    choice: Weighed | None


class Explained(Why, frozen=True, kw_only=True):
    """Why a plan loses, and what would make it win."""

    refusals: tuple[BrokenRuleAnswer, ...]  # with their numbers
    notes: tuple[str, ...]


class CompareAnswer(Diff, frozen=True, kw_only=True):
    """Two plans side by side."""

    notes: tuple[str, ...]


class Changed(WhatIf, frozen=True, kw_only=True):
    """A step with one thing changed."""

    notes: tuple[str, ...]


FORMS = (
    AnswerForm("plan", Planned, "the best plan"),
    AnswerForm("plan --batch auto", BatchPlanned, "the best batch, and its plan"),
    AnswerForm("why", Explained, "why a plan loses to the best"),
    AnswerForm("diff", CompareAnswer, "where two plans differ"),
    AnswerForm("scale", Scaling, "strategies over numbers of GPUs"),
    AnswerForm("whatif", Changed, "a step with one thing changed"),
    AnswerForm("sweep", Sweep, "many answers, one a row"),
)
