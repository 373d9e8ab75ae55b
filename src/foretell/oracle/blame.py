"""Why real steps take longer than they should: the seconds that each cause adds, and what they cost.

What should be is the predicted timeline, traces of a run that was well, or, with neither, the fastest rank. Kernels
say most: that all of a rank's take longer by one factor is its clock (or whoever else computes there), that one of them
does is the kernel. Ranks wait for each other, so a rank that is slower than the others adds its seconds to everybody's
step, and the others see them as messages: of those only the part counts that no rank is spared.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.oracle.kernel_families import family, message_kind
from foretell.oracle.traces import RankTrace, StepTrace

CLOCKS, SLOW_RANK, KERNEL, HOST, COLLECTIVE, IMBALANCE, REST = CAUSES = (
    "clocks", "slow rank", "kernel", "host", "collective", "imbalance", "not explained",
)  # fmt: skip

SAID: Final = {
    CLOCKS: "kernels of all ranks take longer, by one factor",
    SLOW_RANK: "kernels of one rank take longer, by one factor, and the others wait",
    KERNEL: "one kernel takes longer than the others do by that factor",
    HOST: "nothing runs: the host is late",
    COLLECTIVE: "messages take longer, from when the last rank is in them",
    IMBALANCE: "a rank has more to compute",
    REST: "of the step, what none of these is",
}
"""What a cause is, in a line."""

NOTABLE: Final = 0.02
"""Share of the step below which a cause is not told."""

SEEN: Final = 0.003
"""Share of what a rank computes below which a kernel has no say in its factor."""

SLOW: Final = 1.2
"""Times as long as it should, from which on a rank is slow as a whole."""

OUTLIER: Final = 5.0
"""Times as long as a slow rank's others, from which on a kernel is slow by itself: a lower clock, or somebody else on
the core, costs some kernels more than others."""

MORE: Final = 1.05
"""Times as many kernels as the rank with fewest, from which on a rank has more to do."""


class BlamedCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of the difference."""

    cause: str  # of CAUSES
    what: str  # which kernel, which message
    rank: int | None  # None: all ranks
    seconds: float  # of a step
    times: float  # as long as it should; 0: it should not be there
    cost: float  # of 1,000 steps, where a price was given


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """Measured steps against what they should be, and the causes, largest first."""

    against: str  # prediction, trace, the fastest rank
    ranks: int
    steps: int  # of each rank that were looked at
    measured: float  # seconds of a step
    expected: float  # 0: no step is known that it should take
    causes: tuple[BlamedCause, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> BlamedCause | None:
        """The cause that costs most, of those that are explained."""
        return next((one for one in self.causes if one.cause != REST), None)


class RankProfile(NamedTuple):
    """A step of one rank, as it usually is."""

    step: float
    kernels: Mapping[str, float]  # seconds by name
    started: float  # kernels
    exposed: float
    idle: float
    messages: Mapping[str, float]  # seconds by name, from when the last rank is there


class _Slower(NamedTuple):
    """What a rank's kernels and host take more than they should."""

    factor: float
    uniform: float  # seconds that its kernels take more by that factor, or nearly
    kernels: dict[str, float]  # seconds beyond that factor
    host: float


def blame(traces: Sequence[RankTrace], expected: Sequence[RankProfile], against: str, price: float = 0.0) -> Blame:
    """The causes. `expected` is a profile for each rank, one for all, or none; `price` is of a GPU for an hour."""
    ranks = profiles(traces)
    steps = max(len(one.steps) for one in traces)
    measured = statistics.fmean(one.step for one in ranks)
    if not expected and len(ranks) == 1:
        fix = "a model, a plan and a cluster to predict, --against a trace of a good run, or traces of more ranks"
        raise BadInput("one trace of one rank, and nothing to hold it against", where="TRACE", fix=fix)
    should = _should(ranks, expected)
    whole = statistics.fmean(one.step for one in expected) if expected else 0.0
    if expected and against == PREDICTED:
        ranks = [
            one._replace(kernels=_by(family, one.kernels), messages=_by(message_kind, one.messages)) for one in ranks
        ]
    found = [one for one in _causes(ranks, should, bool(expected)) if one.seconds >= NOTABLE * measured]
    if whole and (rest := measured - whole - sum(one.seconds for one in found)) >= NOTABLE * measured:
        found.append(BlamedCause(cause=REST, what="", rank=None, seconds=rest, times=0.0, cost=0.0))
    worth = 1000 * len(ranks) * price / 3600
    found.sort(key=lambda one: (one.cause == REST, -one.seconds))
    return Blame(
        against=against,
        ranks=len(ranks),
        steps=steps,
        measured=measured,
        expected=whole,
        causes=tuple(msgspec.structs.replace(one, cost=one.seconds * worth) for one in found),
    )


PREDICTED: Final = "prediction"
HEALTHY: Final = "trace"
FASTEST: Final = "the fastest rank"


# what was measured


def profiles(traces: Sequence[RankTrace]) -> list[RankProfile]:
    """Each rank's usual step. Of kernels and messages what nine of ten steps take at least: a fault that lasts is in
    all of them, and what other programs take of a machine comes and goes."""
    wires = _wires(traces)
    return [
        RankProfile(
            step=statistics.median(step.seconds for step in one.steps),
            kernels=_usual(one.steps),
            started=statistics.median(sum(step.counts.values()) for step in one.steps),
            exposed=_lasting([step.exposed for step in one.steps]),
            idle=_lasting([step.idle for step in one.steps]),
            messages=wires,
        )
        for one in traces
    ]


def _usual(steps: Sequence[StepTrace]) -> dict[str, float]:
    names = dict.fromkeys(name for step in steps for name in step.kernels)
    return {name: _lasting([step.kernels.get(name, 0.0) for step in steps]) for name in names}


def _lasting(seconds: Sequence[float]) -> float:
    """What nine of ten are not below."""
    return sorted(seconds)[len(seconds) // 10]


def _wires(traces: Sequence[RankTrace]) -> dict[str, float]:
    """Seconds of each kind of message from when the last rank is in it: the least of all ranks, message by message."""
    found: dict[str, list[float]] = defaultdict(list)
    for at in range(min(len(one.steps) for one in traces)):
        sent = [one.steps[at].messages for one in traces]
        whole: dict[str, float] = defaultdict(float)
        for same in zip(*sent, strict=False):
            whole[same[0].name] += min(one.seconds for one in same)
        for name, seconds in whole.items():
            found[name].append(seconds)
    return {name: _lasting(each) for name, each in found.items()}


def _by(kind: Callable[[str], str], named: Mapping[str, float]) -> dict[str, float]:
    """Seconds by kind, of those by name."""
    found: dict[str, float] = defaultdict(float)
    for name, seconds in named.items():
        found[kind(name)] += seconds
    return dict(found)


# what should be


def _should(ranks: Sequence[RankProfile], expected: Sequence[RankProfile]) -> list[RankProfile]:
    """For each rank what it is held against; the least of all ranks, part by part, where nothing else is known."""
    if len(expected) == len(ranks):
        return list(expected)
    if expected:
        return [expected[0]] * len(ranks)
    names = dict.fromkeys(name for one in ranks for name in one.kernels)
    least = RankProfile(
        step=min(one.step for one in ranks),
        kernels={name: min(one.kernels.get(name, 0.0) for one in ranks) for name in names},
        started=min(one.started for one in ranks),
        exposed=min(one.exposed for one in ranks),
        idle=min(one.idle for one in ranks),
        messages=ranks[0].messages,
    )
    return [least] * len(ranks)


# why


def _causes(ranks: Sequence[RankProfile], should: Sequence[RankProfile], known: bool) -> Iterator[BlamedCause]:
    slower = [_slower(one, other) for one, other in zip(ranks, should, strict=True)]
    shared = max(1.0, min(one.factor for one in slower)) if known else 1.0
    common = _common(slower, known)
    if common.uniform > 0:
        yield _cause(CLOCKS, "", None, common.uniform, shared)
    for name, seconds in common.kernels.items():
        usual = statistics.fmean(one.kernels.get(name, 0.0) for one in should) * shared
        yield _cause(KERNEL, name, None, seconds, 1 + seconds / usual if usual else 0.0)
    if common.host > 0:
        usual = statistics.fmean(one.idle for one in should)
        yield _cause(HOST, "", None, common.host, 1 + common.host / usual if usual else 0.0)
    yield from _of_messages(ranks, should, known)
    yield from _of_worst(ranks, should, slower, common, shared)


def _slower(one: RankProfile, other: RankProfile) -> _Slower:
    """A rank against what it should be: one factor for all its kernels, and what some take beyond it."""
    least = SEEN * sum(other.kernels.values())
    pairs = [(one.kernels.get(name, 0.0) / own, own) for name, own in other.kernels.items() if own > least]
    factor = _middle(pairs) or 1.0
    uniform, beyond = (factor - 1) * sum(other.kernels.values()), dict[str, float]()
    for name, own in one.kernels.items():
        usual = factor * other.kernels.get(name, 0.0)
        if factor >= SLOW and own < OUTLIER * usual:
            uniform += own - usual
        elif own > usual:
            beyond[name] = own - usual
    return _Slower(factor, uniform, beyond, max(0.0, one.idle - max(1.0, factor) * other.idle))


def _middle(pairs: Iterable[tuple[float, float]]) -> float:
    """The weighted median."""
    ordered = sorted(pair for pair in pairs if pair[0] > 0)
    left = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return 0.0


def _common(slower: Sequence[_Slower], known: bool) -> _Slower:
    """What all ranks have."""
    uniform = max(0.0, min(one.uniform for one in slower)) if known else 0.0
    names = [name for name in slower[0].kernels if all(name in one.kernels for one in slower)]
    kernels = {name: min(one.kernels[name] for one in slower) for name in names}
    return _Slower(1.0, uniform, kernels, min(one.host for one in slower))


def _of_messages(ranks: Sequence[RankProfile], should: Sequence[RankProfile], known: bool) -> Iterator[BlamedCause]:
    """Exposed seconds that no rank is spared, by the message that takes most of them."""
    if not known:
        return
    more = min(one.exposed for one in ranks) - min(one.exposed for one in should)
    wires, usual = ranks[0].messages, should[0].messages
    beyond = {name: seconds - usual.get(name, 0.0) for name, seconds in wires.items()}
    if more <= 0 or not beyond:
        return
    name = max(beyond, key=beyond.__getitem__)
    times = wires[name] / usual[name] if usual.get(name) else 0.0
    yield _cause(COLLECTIVE, name, None, more, times)


def _of_worst(
    ranks: Sequence[RankProfile],
    should: Sequence[RankProfile],
    slower: Sequence[_Slower],
    common: _Slower,
    shared: float,
) -> Iterator[BlamedCause]:
    """What the rank that all wait for has beyond the others."""
    if len(ranks) < 2:
        return
    own: list[list[BlamedCause]] = []
    fewest = min(one.started for one in ranks)
    for rank, (one, other, slow) in enumerate(zip(ranks, should, slower, strict=True)):
        uniform = slow.uniform - common.uniform
        more = one.started >= MORE * fewest
        found = [_cause(IMBALANCE if more else SLOW_RANK, "", rank, uniform, slow.factor / shared)]
        for name, seconds in slow.kernels.items():
            beyond = seconds - common.kernels.get(name, 0.0)
            usual = other.kernels.get(name, 0.0) * slow.factor
            times = 1 + beyond / usual if usual else 0.0
            found.append(_cause(IMBALANCE if more and not usual else KERNEL, name, rank, beyond, times))
        late = slow.host - common.host
        found.append(_cause(HOST, "", rank, late, 1 + late / other.idle if other.idle else 0.0))
        own.append([each for each in found if each.seconds > 0])
    yield from max(own, key=lambda each: sum(cause.seconds for cause in each))


def _cause(cause: str, what: str, rank: int | None, seconds: float, times: float) -> BlamedCause:
    return BlamedCause(cause=cause, what=what, rank=rank, seconds=seconds, times=times, cost=0.0)
