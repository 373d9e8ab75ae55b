"""One question to the paper's oracle, from a layer file and a plan to an answer."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.errors import BadInput
from foretell.model.zoo._layer_file import LayerFile
from foretell.replicas.paradl import rows, table3
from foretell.replicas.paradl.choice import split_layers
from foretell.replicas.paradl.limits import refusals
from foretell.replicas.paradl.projection import Projection, Question
from foretell.replicas.paradl.release import Release
from foretell.replicas.paradl.shapes import INNER, Asked
from foretell.replicas.paradl.source import timed

LARGEST_BATCH = 10_000_000


def question(file: LayerFile, asked: Asked, batch: int, release: Release) -> Question:
    """What is asked, complete; a batch or a part that makes no sense is refused here."""
    if not 1 <= batch <= LARGEST_BATCH:
        raise BadInput(f"a batch of {batch} samples", fix=f"a whole number from 1 to {LARGEST_BATCH:,}")
    if asked.only and release.clean:
        raise BadInput(f"Table 3 splits all layers alike, not [{asked.only}]", fix="--release 2021, or no part")
    way = INNER.get(asked.strategy, asked.strategy)
    return Question(
        file=timed(file, release),
        release=release,
        batch=batch,
        groups=asked.groups,
        ranks=asked.ranks,
        segments=asked.segments,
        split=split_layers(file, way, asked.only, release.clean),
    )


def project(strategy: str, q: Question) -> Projection:
    """The row, computed as the release does."""
    return (table3.ROWS if q.release.clean else rows.ROWS)[strategy](q)


def checked(asked: Asked, q: Question) -> Projection:
    """The row, or the error for the first rule that the plan breaks."""
    for refusal in refusals(asked.strategy, q):
        raise BadInput(str(refusal), where=f"{asked.strategy}, batch {q.batch}", fix=refusal.way_out)
    return project(asked.strategy, q)


def at(ranks: int, node: int) -> Iterator[Asked]:
    """Each row on this many ranks (serial on one), pipelines with a segment a rank, hybrids with a node a group."""
    yield Asked("serial")
    yield Asked("data", groups=ranks)
    for strategy in ("spatial", "pipeline", "filter", "channel"):
        yield Asked(strategy, ranks=ranks, segments=ranks if strategy == "pipeline" else 1)
    if not left_out(ranks, node):
        for strategy in INNER:
            yield Asked(strategy, groups=ranks // node, ranks=node)


def left_out(ranks: int, node: int) -> dict[str, str]:
    """Hybrids that there are not on this many ranks, and why."""
    if ranks % node:
        why = f"a group is a node of {node} ranks, and {ranks} ranks are not whole nodes"
    elif ranks <= node:
        why = f"a group is a node of {node} ranks, and {ranks} ranks are one group"
    else:
        return {}
    enough = max(2 * node, -(-ranks // node) * node)
    return dict.fromkeys(INNER, f"{why} (they are there on {enough})")
