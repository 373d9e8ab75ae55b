"""Answers of the lab: what hosts on one machine attain, and collectives beside their formulas."""

from __future__ import annotations

import msgspec

from foretell.cli.answers.form import AnswerForm
from foretell.cli.answers.measured import RunAnswer
from foretell.lab.crossover import Crossover
from foretell.lab.measure import AlgorithmOrder, CollectiveRow, Summary


class HostPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two hosts: what was asked of the link between them, and what it attains."""

    pair: tuple[int, int]
    rate: float  # B/s of payload that large messages reach
    delay: float  # s of a round of small messages, all software included
    start: float  # s that the first of several rounds takes longer
    asked_rate: float  # payload, headers taken off
    asked_delay: float


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """What the lab attains."""

    pairs: tuple[HostPair, ...]
    overhead: float  # s of a message beside delay and bytes: the most of all pairs
    start: float  # s of a collective's beginning
    beside: float  # s that a core is busy with a message; 0 where hosts are two
    stolen: float  # share of the wanted time in which this machine's cores were elsewhere


class LabAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The lab as files that `--on` takes."""

    files: tuple[str, ...]  # the cluster's, then those of its links
    overhead: float  # s of a message beside delay and bytes


class Collectives(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives by real algorithms beside their formulas."""

    rows: tuple[CollectiveRow, ...]
    summary: tuple[Summary, ...]  # by algorithm
    orders: tuple[AlgorithmOrder, ...]  # by kind and size


class Crossovers(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of algorithms that change places, and what was timed to see it."""

    crossovers: tuple[Crossover, ...]
    rows: tuple[CollectiveRow, ...]  # both algorithms at sizes around each


FORMS = (
    AnswerForm("lab selftest", SelfTest, "what rate and delay the hosts attain"),
    AnswerForm("lab describe", LabAnswer, "the files that were written"),
    AnswerForm("lab measure", Collectives, "every collective algorithm beside its formula"),
    AnswerForm("lab crossover", Crossovers, "from which size on one algorithm is faster than another"),
    AnswerForm("lab run", RunAnswer, "a measured run across the hosts"),
)
