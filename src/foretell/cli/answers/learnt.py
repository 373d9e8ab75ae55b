"""Answers about learning in virtual time, and about systems that learn like this."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import Form
from foretell.taxonomy.advice import Advice
from foretell.taxonomy.systems import Category, System
from foretell.taxonomy.updates import Update
from foretell.taxonomy.would import Doings
from foretell.virtual.again import Again
from foretell.virtual.agreement import Agreement
from foretell.virtual.batches import Measured
from foretell.virtual.delays import Delay
from foretell.virtual.simulate import OnSeveral, Simulation


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Figure 14 of the taxonomy."""

    delays: tuple[Delay, ...]


class Travels(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends for one update of a model, by technique."""

    model: str
    updates: tuple[Update, ...]  # the plain gradient first


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
    Form("simulate", Simulation, "algorithms by virtual time to a loss"),
    Form("simulate --on --on", OnSeveral, "the same on several clusters"),
    Form("simulate --batches", Measured, "steps to a loss over batches"),
    Form("simulate --fig14", Delays, "delays of an exchange"),
    Form("simulate --record", Again, "a run of real processes beside the same in virtual time"),
    Form("simulate --record --record", Agreement, "the staleness of several runs beside virtual time"),
    Form("advise", Advice, "techniques by virtual time to a loss"),
    Form("systems", dict[str, System], "systems by name"),
    Form("systems --on", Doings, "what systems would do with a model on a cluster"),
    Form("systems --bytes", Travels, "what travels for an update of a model"),
    Form("systems --axes", dict[str, Category], "axes of the taxonomy by name, and what their values mean"),
    Form("systems --plan", Classified, "classes of a plan by axis of the taxonomy, and the systems that lie there"),
)
