"""Every algorithm between emulated hosts beside its formula: what `foretell lab measure` tells."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.lab.bench import STARTS, Attained, CollectiveCase, TimedCollective, attained, timed
from foretell.lab.describe import described
from foretell.lab.formula import WIDTH, Software, formula, further
from foretell.lab.hosts import Lab
from foretell.lab.network import LabNetwork
from foretell.lab.stolen import Stolen
from foretell.runtime.collectives import ALGORITHMS, chosen

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all")
SIZES = (1 << 10, 1 << 15, 1 << 20, 1 << 23)
SMALL = 1 << 16
"""Bytes up to which latencies count more than rates."""

PROBE_SECONDS = 0.1
"""That a large message of the self-test should take."""


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of one size: seconds of every repeat, and what the formula says."""

    algorithm: str
    kind: str
    hosts: int
    rate: float  # B/s of a port
    delay: float  # s
    overhead: float  # s of a message, as the self-test of the same lab found it
    start: float = 0.0  # s of a collective's beginning, likewise
    beside: float = 0.0  # s that a core is busy with a message, likewise
    cores: int = 1  # that all hosts share
    size: int  # bytes of the tensor
    messages: int  # that the busiest rank sends
    bytes: int
    formula: float  # s
    seconds: float  # the median of the samples
    samples: tuple[float, ...]
    island: int = 0
    stolen: float = 0.0  # share of the wanted time in which this machine's cores were elsewhere

    @property
    def error(self) -> float:
        """Formula less measured, as a share of what was measured."""
        return self.formula / self.seconds - 1

    @property
    def software(self) -> Software:
        return Software(self.start, self.overhead, self.beside, self.cores)


def selftested(lab: Lab) -> list[Attained]:
    """What pairs of hosts attain: neighbours all at once, as in a collective, then one pair between islands."""
    network = lab.network
    pairs = [(at, at + 1) for at in range(0, network.hosts - 1, 2)]
    if network.island and network.islands > 1:
        pairs.append((0, network.hosts - 1))
    slowest = min(network.between(*pair).rate for pair in pairs)
    return attained(lab, pairs, max(1 << 16, min(1 << 24, round(slowest * PROBE_SECONDS))))


def overhead(found: Iterable[Attained]) -> float:
    """Seconds of a message beside delay and bytes: the most of all pairs."""
    return max(one.overhead for one in found)


def software(lab: Lab, found: Sequence[Attained] = (), patience: float = 60.0) -> Software:
    """What messages take beside delay and bytes: the most of all pairs; and, where hosts have several others, how long
    a core is busy with one, by small ones that everybody sends to all at once."""
    pairs, cores = found or selftested(lab), len(os.sched_getaffinity(0))
    start, message = max(one.start for one in pairs), overhead(pairs)
    hosts = lab.network.hosts
    everywhere = chosen(f"parameter_server:{hosts}")
    more = further(everywhere, "all-reduce", hosts, cores)
    if more <= 0:
        return Software(start, message, cores=cores)
    small = WIDTH * hosts
    (one,) = timed(lab, [CollectiveCase(everywhere.text, "all-reduce", small, STARTS)], patience)
    alone = formula(everywhere, "all-reduce", small, described(lab.network, message), Software(start))
    return Software(start, message, max(0.0, one.median - alone) / more, cores)


def cases(network: LabNetwork, algorithms: Sequence[str], sizes: Sequence[int], repeats: int) -> list[CollectiveCase]:
    """All kinds of every algorithm that is wanted."""
    found: list[CollectiveCase] = []
    for text in algorithms or everything(network):
        choice = chosen(text)
        found += [
            CollectiveCase(choice.text, kind, size, repeats) for kind in KINDS if choice.does(kind) for size in sizes
        ]
    return found


def everything(network: LabNetwork) -> list[str]:
    """All algorithms; servers one, two and everywhere; islands where there are some."""
    names = [name for name in ALGORITHMS if name not in ("parameter_server", "hierarchical")]
    servers = sorted({1, 2, network.hosts})
    islands = [f"hierarchical:{network.island}"] if network.island else []
    return [*names, *islands, *(f"parameter_server:{count}" for count in servers)]


def measured(lab: Lab, wanted: Sequence[CollectiveCase], seconds: float) -> list[CollectiveRow]:
    """Time the cases, and put what the formulas say beside them.

    The time of a message is tested before and after: what else the machine does is in both.
    """
    stolen, before = Stolen(), software(lab)
    found = timed(lab, wanted, seconds)
    mean = _mean_of(before, software(lab))
    cluster, share = described(lab.network, mean.message), stolen.share()
    return [msgspec.structs.replace(_row(lab.network, cluster, mean, one), stolen=share) for one in found]


def _mean_of(before: Software, after: Software) -> Software:
    start, message, beside = ((one + other) / 2 for one, other in zip(before[:3], after[:3], strict=True))
    return Software(start, message, beside, before.cores)


def _row(network: LabNetwork, cluster: Cluster, known: Software, one: TimedCollective) -> CollectiveRow:
    case = one.case
    return CollectiveRow(
        algorithm=case.algorithm,
        kind=case.kind,
        hosts=network.hosts,
        rate=network.rate,
        delay=network.delay,
        overhead=known.message,
        start=known.start,
        beside=known.beside,
        cores=known.cores,
        size=case.size,
        messages=max(one.messages),
        bytes=max(one.bytes),
        formula=formula(chosen(case.algorithm), case.kind, case.size, cluster, known),
        seconds=one.median,
        samples=tuple(one.seconds),
        island=network.island,
    )


# all of it in short


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one algorithm, as shares: mean of small and of large tensors, and the largest."""

    algorithm: str
    kind: str
    rows: int
    small: float | None  # null: no tensor was that small
    large: float | None  # null: none was larger
    worst: float


def summary(rows: Iterable[CollectiveRow]) -> list[Summary]:
    groups: dict[tuple[str, str], list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.algorithm), []).append(row)
    return [
        Summary(
            algorithm=algorithm,
            kind=kind,
            rows=len(group),
            small=_mean([abs(row.error) for row in group if row.size <= SMALL]),
            large=_mean([abs(row.error) for row in group if row.size > SMALL]),
            worst=max((row.error for row in group), key=abs),
        )
        for (kind, algorithm), group in sorted(groups.items())
    ]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


class AlgorithmOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which algorithm is fastest for one size, on either side, and what trusting the formula costs."""

    kind: str
    size: int
    predicted: str
    fastest: str
    regret: float  # time of the predicted one over that of the fastest, less one


def orders(rows: Iterable[CollectiveRow]) -> list[AlgorithmOrder]:
    """The fastest algorithm of each kind and size: the crossovers, as predicted and as measured."""
    groups: dict[tuple[str, int], list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.size), []).append(row)
    found: list[AlgorithmOrder] = []
    for (kind, size), group in sorted(groups.items()):
        said, was = min(group, key=lambda row: row.formula), min(group, key=lambda row: row.seconds)
        found.append(
            AlgorithmOrder(
                kind=kind,
                size=size,
                predicted=said.algorithm,
                fastest=was.algorithm,
                regret=said.seconds / was.seconds - 1,
            )
        )
    return found
