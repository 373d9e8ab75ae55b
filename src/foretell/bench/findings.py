"""The survey's findings and its advice as questions to rows: each can hold, fail, or not be answered by what is there.

Nichols et al. 2021 (arXiv 2111.04949), sections 5 and 6. The same questions go to the survey's own numbers, to their
prediction, and to what was measured here. A question looks at the rows of one model and device, and yields the cases
that it finds there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, product
from typing import Final, NamedTuple, TypeAlias

from foretell.bench.group import DATA, INTRA, PIPELINE, SHARDED, BenchGroup, EngineScaling, MeanLook, groups, shared
from foretell.bench.row import BenchRow
from foretell.units import show_bytes

HOLDS: Final = "holds"
FAILS: Final = "fails"
UNKNOWN: Final = "cannot be told"


class Verdict(NamedTuple):
    """What rows say to a finding."""

    status: str
    evidence: str


class FindingCase(NamedTuple):
    """One place where a finding can be seen."""

    right: bool | None  # None: nobody can tell
    evidence: str


Cases: TypeAlias = Iterator[FindingCase]


class Finding(NamedTuple):
    """A sentence of the survey, and the question that checks it on the rows of one model and device."""

    name: str
    text: str
    ask: Callable[[BenchGroup], Cases]


class Checked(NamedTuple):
    """A finding on one model and device."""

    finding: Finding
    group: BenchGroup
    verdict: Verdict


# what questions have in common


def _scaled(lines: Iterable[EngineScaling]) -> list[EngineScaling]:
    """Those that begin on one rank and go on."""
    return [line for line in lines if 1 in line.rows and len(line.rows) > 1]


def _beyond_node(group: BenchGroup, lines: Iterable[EngineScaling]) -> Iterator[tuple[EngineScaling, int]]:
    """Those that have a whole node and more, with the most ranks of each."""
    for line in lines:
        if group.node and group.node in line.rows and max(line.rows) > group.node:
            yield line, max(line.rows)


def _together(
    ones: Iterable[EngineScaling], others: Iterable[EngineScaling]
) -> Iterator[tuple[EngineScaling, EngineScaling, int]]:
    """Each with each of the others, on every number of ranks above one that both have."""
    for one, other in product(ones, others):
        yield from ((one, other, ranks) for ranks in shared((one, other)) if ranks > 1)


def _times(one: EngineScaling, other: EngineScaling, ranks: int) -> float:
    """How many times as long an epoch of the one takes."""
    return one.rows[ranks].epoch_seconds / other.rows[ranks].epoch_seconds


def _held(line: EngineScaling) -> dict[int, float]:
    """Bytes of a rank, the mean over ranks, by numbers of ranks; only those that are known."""
    return {ranks: row.mean_memory_bytes for ranks, row in line.rows.items() if row.memory_bytes}


# time

THIRD: Final = 1 / 3
"""Of linear scaling, on the most ranks: the least efficient data-parallel curve of the survey has 38 % on 64 GPUs."""


def _data_scales(group: BenchGroup) -> Cases:
    for line in _scaled(group.of(DATA, SHARDED)):
        most = max(line.rows)
        falls = all(line.rows[low].epoch_seconds > line.rows[high].epoch_seconds for low, high in pairwise(line.rows))
        told = f"{line.engine}: {line.speedup(most):.3g} times as fast on {most} ranks as on one"
        yield FindingCase(falls and line.efficiency(most) >= THIRD, told)


def _pipelines_slow(group: BenchGroup) -> Cases:
    for pipe, line, ranks in _together(group.of(PIPELINE), group.of(DATA, SHARDED)):
        times = _times(pipe, line, ranks)
        yield FindingCase(times > 1, f"{pipe.engine} takes {times:.3g} times as long as {line.engine} on {ranks}")


PLATEAU: Final = 2.0
"""Times as fast on more nodes as on one, at most: the survey's own gains are 1.1 to 1.4."""


def _intra_stops(group: BenchGroup) -> Cases:
    for line, most in _beyond_node(group, group.of(INTRA)):
        gain = line.rows[group.node].epoch_seconds / line.rows[most].epoch_seconds
        told = f"{line.engine}: {most} ranks are {gain:.3g} times as fast as the {group.node} of a node"
        yield FindingCase(gain < min(PLATEAU, most / group.node * 0.8), told)


MOSTLY: Final = 0.5
WAITING: Final = 16
"""The survey has 52.5 % of the time of 16 GPUs spent on communication."""


def _intra_waits(group: BenchGroup) -> Cases:
    for line in group.of(INTRA):
        row = line.rows.get(WAITING)
        if row and any(name.startswith("exposed") for name in row.phases):
            share = row.communication_share
            told = f"{line.engine}: {share:.1%} of a step on {WAITING} ranks is communication"
            yield FindingCase(share >= MOSTLY, told)


FUSED: Final = 1.5
"""Times as fast on one GPU, at least: the survey says about 2."""


def _fused_kernels(group: BenchGroup) -> Cases:
    for own, line in product(group.within("megatron"), group.within("ddp", "zero")):
        if 1 in own.rows and 1 in line.rows:
            times = _times(line, own, 1)
            yield FindingCase(times >= FUSED, f"{own.engine} is {times:.3g} times as fast as {line.engine} on one rank")


def _drops_past_node(group: BenchGroup) -> Cases:
    for line, most in _beyond_node(group, _scaled(group.of(DATA, SHARDED))):
        inside, outside = line.efficiency(group.node), line.efficiency(most)
        told = f"{line.engine}: {inside:.0%} of linear on a node, {outside:.0%} on {most} ranks"
        yield FindingCase(outside < inside, told)


def _backward_longer(group: BenchGroup) -> Cases:
    """With what it waits for gradients of others: the survey's backward pass has it too."""
    for line in group.lines:
        for ranks, row in line.rows.items():
            if row.phases.get("forward") and row.phases.get("backward"):
                times = (row.phases["backward"] + row.phases.get("exposed.dp", 0.0)) / row.phases["forward"]
                yield FindingCase(times > 1, f"{line.engine} on {ranks}: backward is {times:.3g} times forward")


def _data_fastest(group: BenchGroup) -> Cases:
    """On each number of ranks that some way of splitting beside data parallelism has too."""
    data, others = group.of(DATA, SHARDED), group.of(INTRA, PIPELINE)
    for ranks in sorted({ranks for _, _, ranks in _together(data, others)}):
        here = [line for line in (*data, *others) if ranks in line.rows]
        best = min(here, key=lambda line: line.rows[ranks].epoch_seconds)
        yield FindingCase(best in data, f"{best.engine} is the fastest on {ranks} ranks")


# memory


def _intra_memory(group: BenchGroup) -> Cases:
    for line in group.of(INTRA):
        held = _held(line)
        if 1 in held and len(held) > 2:  # without one rank nobody sees it fall
            least = min(held, key=lambda ranks: held[ranks])
            told = f"{line.engine}: least on {least} of {', '.join(map(str, held))} ranks, {show_bytes(held[least])}"
            yield FindingCase(least not in (min(held), max(held)), told)


HALF: Final = 2.0


def _pipelines_save(group: BenchGroup) -> Cases:
    for line in group.of(PIPELINE):
        held = _held(line)
        if 1 in held and len(held) > 1:
            times = held[1] / min(held.values())
            yield FindingCase(
                times >= HALF, f"{line.engine}: a rank holds {times:.3g} times less than one alone, in the mean"
            )


def _sharding_saves(group: BenchGroup) -> Cases:
    """With as many ranks: sharded data parallelism against the plain one, and less with every rank."""
    for line, plain, ranks in _together(group.of(SHARDED), group.of(DATA)):
        own, whole = _held(line), _held(plain).get(ranks)
        several = [size for count, size in own.items() if count > 1]
        falls = all(one > other for one, other in pairwise(several)) if len(several) > 1 else None
        if whole and ranks in own:
            share = own[ranks] / whole
            told = f"{line.engine} holds {share:.0%} of what {plain.engine} does on {ranks}"
            yield FindingCase(falls if share < 1 else False, told)


def _splitting_saves(group: BenchGroup) -> Cases:
    """Some way of splitting layers holds less on a node than plain data parallelism."""
    most = group.node or max((max(line.rows) for line in group.lines), default=0)
    plain = [held[1] for line in group.of(DATA) if 1 in (held := _held(line))]
    split = [_held(line) for line in group.of(INTRA, PIPELINE)]
    for ranks in sorted({ranks for held in split for ranks in held if plain and 1 < ranks <= most}):
        share = min(held[ranks] for held in split if ranks in held) / min(plain)
        yield FindingCase(share < 1, f"on {ranks} ranks a rank holds {share:.0%} of what data parallelism does")


# learning


SEEDS: Final = 2
"""From which something is said about learning. What a paper shows, which was not measured here, is taken as it is."""


def _learnt(one: EngineScaling, on: int, other: EngineScaling, beside: int) -> tuple[list[MeanLook], list[MeanLook]]:
    """What two lines had learnt from the same seeds; nothing where that is not known well enough."""
    seeds = one.seeds_on(on) & other.seeds_on(beside)
    if len(seeds) < SEEDS and one.seeds[on][0].created:
        return [], []
    return one.learnt(on, seeds), other.learnt(beside, seeds)


def _stale_learns_less(group: BenchGroup) -> Cases:
    """At the last look of one that is not flushed, beside what others had learnt by that minute."""
    stale = [line for line in group.of(PIPELINE) if not line.synchronous]
    for one, other in product(stale, (line for line in group.lines if line.synchronous)):
        mine, others = _learnt(one, max(one.rows), other, max(other.rows))
        theirs = [look for look in others if mine and look.seconds <= mine[-1].seconds]
        if theirs:
            told = f"{one.engine} has {mine[-1].told}, {other.engine} had {theirs[-1].told} {theirs[-1].when}"
            yield FindingCase(mine[-1].score < theirs[-1].score, told)


def _large_batches_learn_less(group: BenchGroup) -> Cases:
    """Of one rank and the most, at the last epoch that both have seen."""
    for line in group.of(DATA, SHARDED):
        few, many = _learnt(line, min(line.rows), line, max(line.rows))
        if len(line.rows) > 1 and few and many:
            until = min(few[-1].epoch, many[-1].epoch)
            small, large = ([look for look in looks if look.epoch <= until] for looks in (few, many))
            if small and large:
                told = f"{line.engine}: after {until:.3g} epochs {small[-1].told}, and {large[-1].told} on more ranks"
                yield FindingCase(large[-1].score <= small[-1].score, told)


FINDINGS: Final = (
    Finding("data-scales", "data parallelism scales, sharded or not, on every number of ranks", _data_scales),
    Finding("pipelines-slow", "pipelines are slower than data parallelism on any number of ranks", _pipelines_slow),
    Finding("intra-stops", "intra-layer parallelism stops gaining once it leaves the node", _intra_stops),
    Finding("intra-waits", "on 16 ranks intra-layer parallelism spends more than half on communication", _intra_waits),
    Finding("intra-memory", "its memory falls with the first ranks and rises with the next", _intra_memory),
    Finding("fused-kernels", "Megatron's kernels are much faster than plain PyTorch's on one GPU", _fused_kernels),
    Finding("past-the-node", "data parallelism is less efficient past one node", _drops_past_node),
    Finding("backward", "the backward pass takes longer than the forward pass", _backward_longer),
    Finding("pipelines-save", "pipelines need less than half the memory", _pipelines_save),
    Finding("stale", "a pipeline that is not flushed learns less by the minute", _stale_learns_less),
    Finding("large-batch", "an epoch teaches less on more ranks, in larger batches", _large_batches_learn_less),
    Finding("advice-data", "if the model fits one device, data parallelism is the fastest", _data_fastest),
    Finding("advice-sharded", "if memory is tight, sharding needs less, and less with every rank", _sharding_saves),
    Finding("advice-split", "to save more, split layers inside a node", _splitting_saves),
)
"""In the order of the survey's text; the last three are its advice."""


def check(rows: Iterable[BenchRow]) -> tuple[Checked, ...]:
    """Every finding on every model and device that it can be asked of."""
    found = groups(rows)
    asked = ((finding, group, tuple(finding.ask(group))) for finding in FINDINGS for group in found)
    return tuple(Checked(finding, group, _verdict(cases)) for finding, group, cases in asked if cases)


def _verdict(cases: tuple[FindingCase, ...]) -> Verdict:
    """It holds if it does wherever it can be told; the evidence is that of the first case that fails, else the last."""
    failed = [one.evidence for one in cases if one.right is False]
    held = [one.evidence for one in cases if one.right]
    if failed:
        return Verdict(FAILS, failed[0])
    return Verdict(HOLDS, held[-1]) if held else Verdict(UNKNOWN, cases[-1].evidence)
