"""What is asked of a script that runs as one rank of many, what was seen of it, and the plan that this looks like."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from foretell.runtime.assignment import Failure, Held

SMALL = 1024
"""Bytes of all sums of a group up to which they are losses, norms and counts, and no gradients or activations."""

CLOSE = 0.02
"""How far the bytes that travel may be from those of all gradients, which are rounded to whole shares."""

AGAIN = 1.25
"""Messages that gather weights for each that sums gradients, above which a layer is gathered for both passes."""

TIMES = (0.5, *range(1, 9))
"""Gradients may travel in half of their bytes, or with each of some micro-batches."""


class RehearsedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script as one rank of a cluster."""

    script: str
    arguments: tuple[str, ...]
    rank: int
    ranks: int
    cluster: str
    here: int = 1  # ranks of a node
    priced: bool = True
    steps: int = 10
    dropped: int = 3  # before those that are measured; the last of them is watched


class GroupTraffic(msgspec.Struct, frozen=True, order=True):
    """Collectives of one step that are alike: by kind, how many ranks how far apart, bytes that a rank gives."""

    kind: str
    ranks: int
    stride: int
    payload: int
    count: int


class ScriptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a script: seconds of its steps, and of one of them messages and memory."""

    steps: list[float] = []
    collectives: list[GroupTraffic] = []
    gradients: int = 0  # bytes that this rank keeps of them
    allocated: int = 0
    resting: int = 0
    reserved: int = 0
    alive: list[Held] = []
    device: str = "cpu"
    versions: dict[str, str] = {}
    failure: Failure | None = None


def recognised(report: ScriptReport, ranks: int) -> str:
    """The plan that messages look like; empty where they look like none, or do not account for all ranks."""
    groups: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    counts: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for one in report.collectives:
        groups[one.stride, one.ranks][one.kind] += one.payload * one.count
        counts[one.stride, one.ranks][one.kind] += one.count
    axes: list[str] = []
    found = 1
    for (stride, size), sent in sorted(groups.items(), reverse=True):
        word = _axis(size, sent, counts[stride, size], report.gradients)
        if word.startswith("dp") and ":" not in word and any(one.startswith("dp") for one in axes):
            word = f"tp{size}"  # gradients are summed along one group: sums inside it that are as large are activations
        axes += [word] if word else []
        found *= size if word else 1
    return " ".join(_hybrid(axes)) if found == ranks else ""


def _hybrid(axes: Iterable[str]) -> list[str]:
    """Replicas of weights that lie in shares, dp8 beside dp64:zero3, are one axis of a plan: dp8:zero3,shard64."""
    found: list[str] = []
    for word in axes:
        ranks, said, stage = word.partition(":zero")
        if said and found and found[-1].startswith("dp") and ":" not in found[-1]:
            word = f"{found.pop()}{said}{stage},shard{ranks.removeprefix('dp')}"
        found.append(word)
    return found


def _axis(ranks: int, sent: Mapping[str, int], counts: Mapping[str, int], gradients: int) -> str:
    """What an axis does along which so many bytes of each kind travel, in so many messages.

    Weights that are gathered again for the backward pass are told by how often, not by bytes: in 16 bits they have half
    of what their gradients have.
    """
    if sent.get("send") or sent.get("receive"):
        return f"pp{ranks}"
    if sent.get("all-to-all"):
        return f"ep{ranks}"
    shared, gathered, summed = (sent.get(kind, 0) for kind in ("reduce-scatter", "all-gather", "all-reduce"))
    if shared and _alike(shared, gradients * ranks):
        return f"dp{ranks}:zero3" if counts["all-gather"] > AGAIN * counts["reduce-scatter"] else f"dp{ranks}:zero2"
    if shared and gathered:
        return f"tp{ranks}:sp"
    if summed > SMALL and gathered and _alike(summed, gradients * ranks):  # all gradients, of which a share is kept
        return f"dp{ranks}:zero1"
    if summed > SMALL:
        return f"dp{ranks}" if _alike(summed, gradients) else f"tp{ranks}"
    return ""


def _alike(sent: float, gradients: float) -> bool:
    return any(abs(sent - times * gradients) <= CLOSE * times * gradients for times in TIMES) if gradients else False


def described(found: Iterable[GroupTraffic]) -> Iterator[tuple[str, str, int, int]]:
    """Kind, among whom, how many, and the bytes of all."""
    rows: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for one in found:
        key = (one.kind, f"{one.ranks:,} ranks" + (f", {one.stride} apart" if one.stride > 1 else ""))
        rows[key] += one.count
        sizes[key] += one.count * one.payload
    for key, count in sorted(rows.items()):
        yield *key, count, sizes[key]
