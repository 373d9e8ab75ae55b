"""What a run came to, as one value: the same keys for every algorithm."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import msgspec

from foretell.learning.staleness import summary
from foretell.virtual.world import VirtualWorld


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """SI units. `curve` has a line for each look: samples, updates, seconds, loss, metric."""

    algorithm: str
    workers: int
    problem: str
    metric: str
    target: float | None
    virtual_seconds_to_target: float | None  # None: not reached
    samples_to_target: int | None
    seconds: float  # of the whole run
    updates: int
    gradients: int
    samples: int
    loss: float
    final_metric: float  # accuracy, or the distance to the answer: what `metric` says
    staleness: dict[str, float]  # mean, most, and how many updates: how often
    idle: float  # share of the workers' time in which they do not compute
    wait: float  # seconds from the end of a worker's gradient to the beginning of its next one, in the mean
    link_utilisation: float  # of the busiest port, the busier way
    mean_link_utilisation: float  # of all ports that carried anything, the busier way of each
    bytes: dict[str, float]  # up to servers, down, between peers, total
    failures: int
    ended: str  # target, limit, stalled or diverged
    curve: tuple[tuple[int, int, float, float, float], ...]


def outcome(world: VirtualWorld, text: str, problem: str) -> Outcome:
    """The figures of a world whose clock stands."""
    last = world.curve[-1]
    target = world.limits.loss if math.isfinite(world.limits.loss) else None
    hit = next((point for point in world.curve if target is not None and point.loss <= target), None)
    return Outcome(
        algorithm=text,
        workers=world.count,
        problem=problem,
        metric=world.problem.metric,
        target=target,
        virtual_seconds_to_target=hit.seconds if hit else None,
        samples_to_target=hit.samples if hit else None,
        seconds=world.now,
        updates=world.server.version or world.absorbed,
        gradients=world.absorbed,
        samples=world.absorbed * world.batch,
        loss=last.loss,
        final_metric=last.metric,
        staleness=summary(world.staleness),
        idle=_idle(world),
        wait=world.waited / max(1, sum(worker.clock for worker in world.workers)),
        link_utilisation=max(_utilisation(world), default=0.0),
        mean_link_utilisation=fmean(_utilisation(world) or [0.0]),
        bytes={**world.bytes, "total": sum(world.bytes.values())},
        failures=world.failures,
        ended=_ended(world, hit is not None),
        curve=tuple(world.curve),
    )


def _idle(world: VirtualWorld) -> float:
    under_way = sum(max(0.0, worker.until - world.now) for worker in world.computing())
    busy = sum(worker.busy for worker in world.workers) - under_way
    return max(0.0, 1.0 - busy / (world.now * world.count)) if world.now else 0.0


def _utilisation(world: VirtualWorld) -> list[float]:
    """Of each port that carried anything. What waits for one when the clock stops is counted as sent: a port that never
    rests has 1, not more."""
    busy = (max(both) for both in zip(world.out_seconds, world.in_seconds, strict=True))
    return [min(1.0, seconds / (world.now or 1.0)) for seconds in busy if seconds]


def _ended(world: VirtualWorld, hit: bool) -> str:
    if hit:
        return "target"
    if not math.isfinite(world.curve[-1].loss):
        return "diverged"
    over = world.absorbed >= world.limits.gradients or world.now >= world.limits.seconds
    return "limit" if over or world.engine.played >= world.limits.events or world.engine.stopped else "stalled"


def trace(world: VirtualWorld, text: str) -> dict[str, Any]:
    """The spans of a traced run, as a file for Perfetto: a thread a node, workers first."""
    spans = world.spans or []
    events: list[dict[str, Any]] = []
    for node in sorted({span.node for span in spans}):
        name = f"worker {node}" if node < world.count else f"server {node - world.count}"
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": node, "args": {"name": name}})
    for span in spans:
        lane = {"pid": 0, "tid": span.node, "ts": span.start * 1e6, "dur": span.seconds * 1e6}
        events.append({"name": span.what, "ph": "X", **lane})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"algorithm": text, "seconds": world.now}}
