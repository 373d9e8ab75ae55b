"""The survey's findings and its advice as questions to rows: each can hold, fail, or not be answered by what is there.

Nichols et al. 2021 (arXiv 2111.04949), sections 5 and 6. The same questions go to the survey's own numbers, to their
prediction, and to what was measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from foretell.bench.group import DATA, INTRA, PIPELINE, SHARDED, Group, Line, groups, shared
from foretell.bench.row import Row
from foretell.units import show_bytes

HOLDS: Final = "holds"
FAILS: Final = "fails"
UNKNOWN: Final = "cannot be told"


class Verdict(NamedTuple):
    """What rows say to a finding."""

    status: str
    evidence: str


class Finding(NamedTuple):
    """A sentence of the survey, and the question that checks it on the rows of one model and device."""

    name: str
    text: str
    ask: Callable[[Group], Verdict | None]  # None: nothing here to ask


class Checked(NamedTuple):
    """A finding on one model and device."""

    finding: Finding
    group: Group
    verdict: Verdict


Cases: TypeAlias = list[tuple[bool | None, str]]
"""Whether it is so, None where nobody can tell, and what is seen."""


def _verdict(cases: Cases) -> Verdict | None:
    """It holds if it does wherever it can be told; the evidence is that of the first case that fails, else the last."""
    if not cases:
        return None
    failed = [told for right, told in cases if right is False]
    held = [told for right, told in cases if right]
    if failed:
        return Verdict(FAILS, failed[0])
    return Verdict(HOLDS, held[-1]) if held else Verdict(UNKNOWN, cases[-1][1])


def _scaled(lines: Iterable[Line]) -> list[Line]:
    """Lines that begin on one rank and go on."""
    return [line for line in lines if 1 in line.rows and len(line.rows) > 1]


THIRD: Final = 1 / 3
"""Of linear scaling, on the most ranks: the least efficient data-parallel curve of the survey has 38 % on 64 GPUs."""


def _data_scales(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in _scaled(group.of(DATA, SHARDED)):
        most = max(line.rows)
        told = f"{line.engine}: {line.speedup(most):.3g} times as fast on {most} ranks as on one"
        falls = all(line.rows[low].epoch_seconds > line.rows[high].epoch_seconds for low, high in pairwise(line.counts))
        cases.append((falls and line.efficiency(most) >= THIRD, told))
    return _verdict(cases)


def _pipelines_slow(group: Group) -> Verdict | None:
    cases: Cases = []
    for pipe in group.of(PIPELINE):
        for line in group.of(DATA, SHARDED):
            for ranks in (one for one in shared((pipe, line)) if one > 1):
                times = pipe.rows[ranks].epoch_seconds / line.rows[ranks].epoch_seconds
                cases.append((times > 1, f"{pipe.engine} takes {times:.3g} times as long as {line.engine} on {ranks}"))
    return _verdict(cases)


PLATEAU: Final = 2.0
"""Times as fast on more nodes as on one, at most: the survey's own gains are 1.1 to 1.4."""


def _intra_stops(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in group.of(INTRA):
        beyond = [ranks for ranks in line.rows if group.node and ranks > group.node]
        if group.node in line.rows and beyond:
            gain = line.rows[group.node].epoch_seconds / line.rows[max(beyond)].epoch_seconds
            told = f"{line.engine}: {max(beyond)} ranks are {gain:.3g} times as fast as the {group.node} of a node"
            cases.append((gain < min(PLATEAU, max(beyond) / group.node * 0.8), told))
    return _verdict(cases)


MOSTLY: Final = 0.5
WAITING: Final = 16
"""The survey has 52.5 % of the time of 16 GPUs spent on communication."""


def _intra_waits(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in group.of(INTRA):
        row = line.rows.get(WAITING)
        if row and any(name.startswith("exposed") for name in row.phases):
            share = row.communication_share
            cases.append((share >= MOSTLY, f"{line.engine}: {share:.1%} of a step on {WAITING} ranks is communication"))
    return _verdict(cases)


def _intra_memory(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in group.of(INTRA):
        held = {ranks: row.memory_bytes for ranks, row in line.rows.items() if row.memory_bytes}
        if len(held) > 2:
            least = min(held, key=lambda ranks: held[ranks])
            told = f"{line.engine}: least on {least} of {', '.join(map(str, held))} ranks, {show_bytes(held[least])}"
            cases.append((least not in (min(held), max(held)), told))
    return _verdict(cases)


FUSED: Final = 1.5
"""Times as fast on one GPU, at least: the survey says about 2."""


def _fused_kernels(group: Group) -> Verdict | None:
    cases: Cases = []
    for own in group.within("megatron"):
        for line in group.within("ddp", "zero"):
            if 1 in own.rows and 1 in line.rows:
                times = line.rows[1].epoch_seconds / own.rows[1].epoch_seconds
                told = f"{own.engine} is {times:.3g} times as fast as {line.engine} on one rank"
                cases.append((times >= FUSED, told))
    return _verdict(cases)


def _drops_past_node(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in _scaled(group.of(DATA, SHARDED)):
        beyond = [ranks for ranks in line.rows if group.node and ranks > group.node]
        if group.node in line.rows and beyond:
            inside, outside = line.efficiency(group.node), line.efficiency(max(beyond))
            told = f"{line.engine}: {inside:.0%} of linear on a node, {outside:.0%} on {max(beyond)} ranks"
            cases.append((outside < inside, told))
    return _verdict(cases)


def _backward_longer(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in group.lines:
        for ranks, row in line.rows.items():
            if row.phases.get("forward") and row.phases.get("backward"):
                times = row.phases["backward"] / row.phases["forward"]
                cases.append((times > 1, f"{line.engine} on {ranks}: backward is {times:.3g} times forward"))
    return _verdict(cases)


HALF: Final = 2.0


def _pipelines_save(group: Group) -> Verdict | None:
    cases: Cases = []
    for line in group.of(PIPELINE):
        held = {ranks: row.memory_bytes for ranks, row in line.rows.items() if row.memory_bytes}
        if 1 in held and len(held) > 1:
            times = held[1] / min(held.values())
            cases.append((times >= HALF, f"{line.engine}: a rank holds {times:.3g} times less than one alone"))
    return _verdict(cases)


def _sharding_saves(group: Group) -> Verdict | None:
    """With as many ranks: sharded data parallelism against the plain one, and less with every rank."""
    cases: Cases = []
    for line in group.of(SHARDED):
        held = [row.memory_bytes for ranks, row in line.rows.items() if row.memory_bytes and ranks > 1]
        falls = all(one > other for one, other in pairwise(held)) if len(held) > 1 else None
        for plain in group.of(DATA):
            for ranks in (one for one in shared((line, plain)) if one > 1):
                share = _held(line, ranks) / _held(plain, ranks) if _held(plain, ranks) and held else 0.0
                if share:
                    told = f"{line.engine} holds {share:.0%} of what {plain.engine} does on {ranks}"
                    cases.append((falls if share < 1 else False, told))
    return _verdict(cases)


def _held(line: Line, ranks: int) -> int:
    return line.rows[ranks].memory_bytes


def _data_fastest(group: Group) -> Verdict | None:
    """On each number of ranks that some way of splitting beside data parallelism has too."""
    cases: Cases = []
    data, others = group.of(DATA, SHARDED), group.of(INTRA, PIPELINE)
    for ranks in sorted({ranks for line in others for ranks in line.rows if ranks > 1}):
        here = [line for line in (*data, *others) if ranks in line.rows]
        if any(line in data for line in here):
            best = min(here, key=lambda line: line.rows[ranks].epoch_seconds)
            cases.append((best in data, f"{best.engine} is the fastest on {ranks} ranks"))
    return _verdict(cases)


def _splitting_saves(group: Group) -> Verdict | None:
    """Some way of splitting layers holds less on a node than plain data parallelism."""
    most = group.node or max((max(line.rows) for line in group.lines), default=0)
    cases: Cases = []
    plain = [line for line in group.of(DATA) if 1 in line.rows and _held(line, 1)]
    for ranks in sorted({ranks for line in group.of(INTRA, PIPELINE) for ranks in line.rows if 1 < ranks <= most}):
        held = [_held(line, ranks) for line in group.of(INTRA, PIPELINE) if ranks in line.rows and _held(line, ranks)]
        if plain and held:
            share = min(held) / min(_held(line, 1) for line in plain)
            cases.append((share < 1, f"on {ranks} ranks a rank holds {share:.0%} of what data parallelism does"))
    return _verdict(cases)


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
    Finding("advice-data", "if the model fits one device, data parallelism is the fastest", _data_fastest),
    Finding("advice-sharded", "if memory is tight, sharding needs less, and less with every rank", _sharding_saves),
    Finding("advice-split", "to save more, split layers inside a node", _splitting_saves),
)
"""In the order of the survey's text; the last three are its advice."""


def check(rows: Iterable[Row]) -> tuple[Checked, ...]:
    """Every finding on every model and device that it can be asked of."""
    found = groups(rows)
    asked = ((finding, group, finding.ask(group)) for finding in FINDINGS for group in found)
    return tuple(Checked(finding, group, verdict) for finding, group, verdict in asked if verdict is not None)
