"""Collectives between emulated hosts, timed: every rank starts at the same moment, the last one to end counts.

All hosts read one clock, so a moment can be agreed on: a collective has no barrier in front of it whose own end would
be measured with it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from foretell.lab.formula import WIDTH
from foretell.lab.hosts import Lab
from foretell.lab.network import PAYLOAD, LabNetwork, address
from foretell.runtime.collectives import AlgorithmChoice, ElementSpan, Message, Round, Team, chosen
from foretell.runtime.collectives._lines import Lines, connected, listener

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

PORT = 7700
MARGIN = 2e-3
"""Seconds between the moment that is agreed on and the last rank that hears of it."""

ROUNDS, STARTS = (1, 5), 25
"""Of the self-test: rounds one after the other, few and many, and how often they are started."""

FIRST = 1
"""The priority of ranks that are timed, where it is allowed: other programs are not what is measured. The switch has a
higher one."""


class CollectiveCase(NamedTuple):
    """One collective; `size` are bytes of the whole tensor."""

    algorithm: str
    kind: str
    size: int
    repeats: int = 5


class TimedCollective(NamedTuple):
    case: CollectiveCase
    seconds: list[float]  # of each repeat, of the last rank
    messages: list[int]  # that each rank sent
    bytes: list[int]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def timed(lab: Lab, cases: Sequence[CollectiveCase], seconds: float) -> list[TimedCollective]:
    """Do every case among all hosts, a rank each. What a rank gets wrong is an error, not a time."""
    count, wait = len(lab.hosts), _margin(lab.network)
    told = lab.each(lambda rank: _rank(rank, count, wait, cases), seconds)
    found: list[TimedCollective] = []
    for at, case in enumerate(cases):
        ends = [one[at]["seconds"] for one in told]
        found.append(
            TimedCollective(
                case,
                [max(each) for each in zip(*ends, strict=True)],
                [one[at]["messages"] for one in told],
                [one[at]["bytes"] for one in told],
            )
        )
    return found


def _margin(network: LabNetwork) -> float:
    slowest = max(network.between(a, b).delay for a in range(network.hosts) for b in range(a))
    return MARGIN + 2 * slowest * network.hosts.bit_length()


def _rank(rank: int, count: int, wait: float, cases: Sequence[CollectiveCase]) -> list[dict[str, object]]:
    _before_others()
    lines = connected(rank, range(count), listener(address(rank), PORT), lambda peer: (address(peer), PORT), 60.0)
    return [_done(lines, rank, count, wait, case) for case in cases]


def _before_others() -> None:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(FIRST))


def _done(lines: Lines, rank: int, count: int, wait: float, case: CollectiveCase) -> dict[str, object]:
    import numpy

    choice, size = chosen(case.algorithm), case.size // WIDTH // count * count
    team = Team.of(rank, count, size)
    given = numpy.arange(size, dtype=numpy.float32) % 8 + rank
    took: list[float] = []
    sent = 0, 0
    for repeat in range(case.repeats + 1):
        source = given.copy()
        target = source if case.kind != "all-to-all" else given.copy()
        rounds = list(choice.rounds(case.kind, team))
        start = _together(lines, team, wait)
        before = lines.messages, lines.bytes
        lines.perform(rounds, source, target)
        ended = time.monotonic()
        sent = lines.messages - before[0], lines.bytes - before[1]
        _together(lines, team, 0.0)  # who is ready leaves the cores to those that are not
        _checked(case, team, given - rank, target)
        if repeat:  # the first one warms connections
            took.append(ended - start)
    return {"seconds": took, "messages": sent[0], "bytes": sent[1]}


def _together(lines: Lines, team: Team, wait: float) -> float:
    """Return at the same moment as all the others; when that was to be."""
    import numpy

    one = Team(team.members, team.at, ElementSpan(0, 1))
    everybody = AlgorithmChoice("binomial")
    moment = numpy.zeros(1)
    lines.perform(everybody.rounds("all-reduce", one), moment, moment)
    moment[0] = time.monotonic() + wait if team.at == 0 else 0.0
    lines.perform(everybody.rounds("broadcast", one), moment, moment)
    while (left := moment[0] - time.monotonic()) > 0:
        time.sleep(left)  # nobody looks at the clock until then: others need the core to wake on
    return float(moment[0])


def _checked(case: CollectiveCase, team: Team, base: NDArray[numpy.float32], found: NDArray[numpy.float32]) -> None:
    """Whether a collective did what it is for: rank r began with base + r."""
    import numpy

    count = len(team)
    total = count * base + count * (count - 1) // 2
    whole, own = slice(0, len(base)), slice(*team.block(team.at))
    if case.kind == "all-reduce":
        right = bool(numpy.array_equal(found, total))
    elif case.kind == "reduce-scatter":
        right = bool(numpy.array_equal(found[own], total[own]))
    elif case.kind == "broadcast":
        right = bool(numpy.array_equal(found[whole], base))
    else:
        right = all(_block_is_right(case, team, base, found, peer) for peer in range(count))
    if not right:
        raise AssertionError(f"{case.algorithm} {case.kind} of {case.size} bytes is wrong on rank {team.at}")


def _block_is_right(
    case: CollectiveCase, team: Team, base: NDArray[numpy.float32], found: NDArray[numpy.float32], peer: int
) -> bool:
    import numpy

    mine, theirs = slice(*team.block(team.at)), slice(*team.block(peer))
    sent = theirs if case.kind == "all-gather" else mine
    return peer == team.at or bool(numpy.array_equal(found[theirs], base[sent] + peer))


# one message, as Hockney has it


class Attained(NamedTuple):
    """What a pair of hosts attains beside what was asked for."""

    pair: tuple[int, int]
    rate: float  # B/s of payload that large messages reach
    delay: float  # s of a round in which two hosts send each other a small message, all software included
    start: float  # s that the first of several rounds takes longer
    asked_rate: float  # payload, headers taken off
    asked_delay: float

    @property
    def overhead(self) -> float:
        """Seconds of a message that are neither delay nor bytes."""
        return max(0.0, self.delay - self.asked_delay)


def attained(lab: Lab, pairs: Sequence[tuple[int, int]], size: int, seconds: float = 60.0) -> list[Attained]:
    """What pairs of hosts attain: rounds of small messages for the delay, there and back a large one for the rate.

    The delay is that of a round as collectives have it, both hosts at once: two that answer each other in turn would
    find every cache warm.
    """
    wait = _margin(lab.network)
    told = lab.each(lambda rank: _player(rank, pairs, size, wait), seconds)
    found: list[Attained] = []
    for pair in pairs:
        wire = lab.network.between(*pair)
        name = f"{pair[0]}-{pair[1]}"
        few, many = (max(told[end][name][at] for end in pair) for at in range(len(ROUNDS)))
        each = max(wire.delay, (many - few) / (ROUNDS[1] - ROUNDS[0]))
        small, large = told[pair[0]][name][len(ROUNDS) :]
        rate = size / max(1e-9, large - small)
        start = max(0.0, few - ROUNDS[0] * each)
        found.append(Attained(pair, rate, each, start, wire.rate * PAYLOAD, wire.delay))
    return found


def _player(rank: int, pairs: Sequence[tuple[int, int]], size: int, wait: float) -> dict[str, tuple[float, ...]]:
    _before_others()
    found: dict[str, tuple[float, ...]] = {}
    for at, pair in enumerate(pairs):
        if rank in pair:
            own = listener(address(rank), PORT + 1 + at)
            lines = connected(rank, pair, own, lambda peer, port=PORT + 1 + at: (address(peer), port), 60.0)
            found[f"{pair[0]}-{pair[1]}"] = (
                *_rounds(lines, Team(pair, pair.index(rank), ElementSpan(0, 1)), wait),
                _one_way(lines, pair, rank, 1, 10),
                _one_way(lines, pair, rank, size, 5),
            )
            lines.close()
    return found


def _rounds(lines: Lines, team: Team, wait: float) -> list[float]:
    """Seconds of few and of many rounds in which both send one element and wait for the other's: medians of starts that
    take turns."""
    import numpy

    data = numpy.zeros(1)
    both = list(AlgorithmChoice("butterfly").rounds("all-reduce", team))
    took: dict[int, list[float]] = {count: [] for count in ROUNDS}
    for _ in range(STARTS):
        for count in ROUNDS:
            start = _together(lines, team, wait)
            lines.perform(both * count, data, data)
            took[count].append(time.monotonic() - start)
    return [statistics.median(times[1:]) for times in took.values()]


def _one_way(lines: Lines, pair: tuple[int, int], rank: int, size: int, repeats: int) -> float:
    """Half of a round trip, the median; there and back a message of the same size."""
    import numpy

    data = numpy.zeros(size, dtype=numpy.uint8)
    out = (Message(next(peer for peer in pair if peer != rank), ElementSpan(0, size)),)
    there, here = Round(sends=out), Round(receives=out)
    order = (there, here) if rank == pair[0] else (here, there)
    took: list[float] = []
    for _ in range(repeats + 1):
        start = time.monotonic()
        lines.perform(order, data, data)
        took.append(time.monotonic() - start)
    return statistics.median(took[1:]) / 2
