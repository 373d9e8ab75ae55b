"""Answers about learning in virtual time, and about systems that learn like this."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import AnswerForm
from foretell.taxonomy.advice import Advice
from foretell.taxonomy.systems import Category, System
from foretell.taxonomy.updates import UpdateTechnique
from foretell.taxonomy.would import Doings
from foretell.virtual.again import Again
from foretell.virtual.agreement import Agreement
from foretell.virtual.batches import BatchTradeOff
from foretell.virtual.delays import Delay
from foretell.virtual.simulate import OnSeveral, Simulation


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Figure 14 of the taxonomy."""

    delays: tuple[Delay, ...]


class Travels(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends for one update of a model, by technique."""

    model: str
    updates: tuple[UpdateTechnique, ...]  # the plain gradient first


class Classified(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plan, an algorithm or a run lies on the axes of the taxonomy."""

    parallelism: tuple[str, ...]
    optimization: tuple[str, ...]
    scheduling: tuple[str, ...]
    exchange: tuple[str, ...]
    topology: tuple[str, ...]
    compression: tuple[str, ...]
    consolidation: tuple[str, ...]
    order: tuple[str, ...]
    systems: tuple[str, ...]  # names of those that can do what lies there


FORMS = (
    AnswerForm("simulate", Simulation, "algorithms by virtual time to a loss"),
    AnswerForm("simulate --on --on", OnSeveral, "the same on several clusters"),
    AnswerForm("simulate --batches", BatchTradeOff, "steps to a loss over batches"),
    AnswerForm("simulate --fig14", Delays, "delays of an exchange"),
    AnswerForm("simulate --record", Again, "a run of real processes beside the same in virtual time"),
    AnswerForm("simulate --record --record", Agreement, "the staleness of several runs beside virtual time"),
    AnswerForm("advise", Advice, "techniques by virtual time to a loss"),
    AnswerForm("systems", dict[str, System], "systems by name"),
    AnswerForm("systems --on", Doings, "what systems would do with a model on a cluster"),
    AnswerForm("systems --bytes", Travels, "what travels for an update of a model"),
    AnswerForm("systems --axes", dict[str, Category], "axes of the taxonomy by name, and what their values mean"),
    AnswerForm(
        "systems --plan", Classified, "classes of a plan by axis of the taxonomy, and the systems that lie there"
    ),
)
