"""The output of nccl-tests: one collective over sizes. Ranks and hosts are those of its header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretell.cost.samples import CollectiveSample
from foretell.errors import BadInput
from foretell.oracle.anchors import DECIMAL, WHOLE, Anchor, Swept

SUMMARY = "the output of nccl-tests, whole (its header has the ranks)"

ROW: Final = re.compile(
    rf"^\s*(?P<bytes>{WHOLE})\s+\d+\s+\w+\s+(?:\w+\s+)?-?\d+"
    rf"\s+(?P<us>{DECIMAL})\s+(?P<algorithm>{DECIMAL})\s+(?P<bus>{DECIMAL})",
    re.M,
)
"""Bytes, elements, type, perhaps an operation, a root; then time, algorithm and bus bandwidth, out of place."""

RANK: Final = re.compile(r"^#\s+Rank\s+(\d+).* on\s+(\S+)\s+device", re.M)
NAMES: Final = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "sendrecv": "send",
}


def read(text: str, path: Path) -> Anchor | None:
    rows = [(int(row["bytes"]), float(row["us"]) * 1e-6, row) for row in ROW.finditer(text)]
    ranks = RANK.findall(text)
    if not rows or "busbw" not in text:
        return None
    if len(ranks) < 2:
        fix = "its output with the lines '#  Rank  0 ... on HOST device'"
        raise BadInput("the number of ranks is not in the file", where=str(path), fix=fix)
    kind = _kind(text, path, rows[-1][2], len(ranks))
    nodes = len({host for _, host in ranks})
    return Anchor(form="nccl-tests", sweeps=tuple(_sweeps(kind, len(ranks), nodes, rows)))


def _sweeps(kind: str, ranks: int, nodes: int, rows: list[tuple[int, float, re.Match[str]]]) -> Iterator[Swept]:
    for size, seconds, _ in rows:
        if size and seconds:
            payload = size // ranks if kind == "all-gather" else size
            yield Swept(CollectiveSample(kind=kind, ranks=ranks, payload=max(1, payload)), nodes, seconds)


def _kind(text: str, path: Path, row: re.Match[str], ranks: int) -> str:
    """By a name in the output or of the file; an all-reduce also by its bus bandwidth, 2 (n - 1) / n of the other."""
    for name, kind in NAMES.items():
        if f"{name}_perf" in text or name in path.name.replace("-", "_"):
            return kind
    twice = 2 * (ranks - 1) / ranks
    if float(row["algorithm"]) and abs(float(row["bus"]) / float(row["algorithm"]) / twice - 1) < 0.05:
        return "all-reduce"
    fix = f"the name of the test in the file's name: {', '.join(NAMES)}"
    raise BadInput("the collective is not named in the file", where=str(path), fix=fix)
