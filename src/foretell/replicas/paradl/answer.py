"""The answer for machines: an observation with what the paper adds, in SI units."""

from __future__ import annotations

from typing import Any

import msgspec

from foretell.model.zoo._layer_file import LayerFile
from foretell.replicas.paradl.limits import limit, refusals
from foretell.replicas.paradl.predict import project, question
from foretell.replicas.paradl.projection import Projection, ProjectionQuestion
from foretell.replicas.paradl.release import RELEASES
from foretell.replicas.paradl.shapes import RowShape, written

ACCURACY = {
    "data": 0.9610,
    "filter": 0.8556,
    "channel": 0.7367,
    "data+filter": 0.9143,
    "data+spatial": 0.8346,
    "pipeline": 0.9022,
}
"""Means that the paper reports for its own projections: 1 - |measured - projected| / measured."""

MEAN_ACCURACY = 0.8674
"""Of all of them; for rows that were not measured."""


def interval(projection: Projection) -> list[float]:
    """Seconds of a step between which a measurement lies that is as far off as the paper's were on average."""
    seconds = projection.a_step(projection.seconds)
    close = accuracy(projection.strategy)
    return [seconds / (2 - close), seconds / close]


def accuracy(strategy: str) -> float:
    return ACCURACY.get(strategy, MEAN_ACCURACY)


def breakdown(projection: Projection) -> dict[str, float]:
    """A step by the keys of an observation. Forward and backward are not told apart, so they are `other`."""
    parts = {"other": projection.a_step(projection.computation - projection.bubble)}
    if projection.bubble:
        parts["bubble"] = projection.a_step(projection.bubble)
    for term in projection.terms:
        key = f"exposed.{term.axis}"
        parts[key] = parts.get(key, 0.0) + projection.a_step(term.seconds)
    return parts


def fits(projection: Projection, q: ProjectionQuestion) -> bool:
    return bool(projection.memory <= q.release.platform.memory)


def answer(model: str, file: LayerFile, row: RowShape, q: ProjectionQuestion, projection: Projection) -> dict[str, Any]:
    """One JSON object."""
    most = limit(projection.strategy, q)
    step = projection.a_step
    return {
        "model": model,
        "plan": written(row),
        "oracle": "paper",
        "strategy": projection.strategy,
        "ranks": projection.ranks,
        "batch": projection.batch,
        "step_seconds": step(projection.seconds),
        "interval": interval(projection),
        "memory_bytes": projection.memory,
        "memory_limit_bytes": q.release.platform.memory,
        "fits": fits(projection, q),
        "most_samples_per_group": projection.most_samples,
        "breakdown": breakdown(projection),
        "bottlenecks": [name for name, _ in bottlenecks(projection)],
        "terms": [
            {"name": term.name, "axis": term.axis, "step_seconds": step(term.seconds), "epoch_seconds": term.seconds}
            for term in projection.terms
        ],
        "computation_seconds": {"step": step(projection.computation), "epoch": projection.computation},
        "communication_seconds": {"step": step(projection.communication), "epoch": projection.communication},
        "epoch_seconds": projection.seconds,
        "steps_per_epoch": projection.steps,
        "limit": {"ranks": most.ranks, "rule": most.rule},
        "cost_rank_minutes": projection.cost,
        "stages": [msgspec.to_builtins(stage) for stage in projection.stages],
        "releases": others(file, row, q),
        "provenance": provenance(projection.strategy, q),
    }


def bottlenecks(projection: Projection) -> list[tuple[str, float]]:
    """What takes time, longest first, with its seconds an epoch."""
    parts = [("computation", projection.computation), *((term.name, term.seconds) for term in projection.terms)]
    return sorted((part for part in parts if part[1]), key=lambda part: -part[1])


def others(file: LayerFile, row: RowShape, q: ProjectionQuestion) -> dict[str, dict[str, float]]:
    """The same row by the other releases that allow it, an epoch each; Table 3 knows no parts."""
    found: dict[str, dict[str, float]] = {}
    for name, release in RELEASES.items() if q.release.platform.name == "abci" else ():
        release = msgspec.structs.replace(release, gamma=q.release.gamma)
        if name == q.release.name or (release.clean and row.only):
            continue
        asked = question(file, row, q.batch, release)
        if any(refusals(row.strategy, asked)):
            continue
        other = project(row.strategy, asked)
        found[name] = {
            "computation_seconds": other.computation,
            "communication_seconds": other.communication,
            "epoch_seconds": other.seconds,
            "memory_bytes": other.memory,
        }
    return found


def provenance(strategy: str, q: ProjectionQuestion) -> dict[str, Any]:
    """Where each number came from."""
    return {
        "oracle": "Kahira et al. 2021, arXiv 2104.09075",
        "release": q.release.name,
        "source": q.release.source,
        "constants": msgspec.to_builtins(q.release.platform),
        "gamma": q.release.gamma,
        "quirks": q.release.quirks(strategy),
        "split_layers": [layer.name for layer, split in q.layers if split],
        "interval": f"{accuracy(strategy):.2%}, the mean accuracy that the paper reports for "
        + ("this strategy" if strategy in ACCURACY else "all its strategies"),
    }
