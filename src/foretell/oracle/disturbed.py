"""A prediction for a machine on which something is wrong: a slow rank, a slow link, another job on the links.

Training is synchronous, so all ranks wait for the slow one. Without a pipeline the step is that of a machine all of
whose ranks are as slow. In a pipeline every micro-batch passes the slow stage: the step is longer by what its rank
computes longer than the one that computed longest before. Links are as slow as the slowest of their level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.hardware.disturbance import CALM, Disturbance, SlowRank, with_disturbed_links
from foretell.model.graph import Graph
from foretell.oracle.explain import Bottleneck
from foretell.oracle.predict import Prediction, predict, stage_work
from foretell.oracle.training import STEP_ALONE, TrainingRun, whole
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.units import show_percent

WORTH = 0.01
"""Share of a step from which what somebody says is wrong is told to be a cause."""


def predict_disturbed(
    setting: Setting, cluster: Cluster, found: Disturbance = CALM, run: TrainingRun = STEP_ALONE
) -> Prediction:
    """Predict a step as it is with this disturbance; what each part of it costs is among the bottlenecks."""
    calm = predict(setting, cluster, run)
    if not found:
        return calm
    found.check(setting.plan.ranks)
    links = with_disturbed_links(cluster, found)
    congested = predict(setting, links, run) if links is not cluster else calm
    disturbed, slow = _straggling(setting, links, congested, found, run) if found.ranks else (congested, None)
    told = [*_straggler(congested, disturbed, slow), *_links(calm, congested, disturbed, found)]
    return msgspec.structs.replace(disturbed, bottlenecks=(*told, *disturbed.bottlenecks))


# a rank that computes slowly


def _straggling(
    setting: Setting, cluster: Cluster, before: Prediction, found: Disturbance, run: TrainingRun
) -> tuple[Prediction, SlowRank]:
    """The step with slow ranks, and the one of them for which all wait."""
    if setting.plan.axis(Pipeline) is None:
        slow = max(found.ranks, key=lambda one: one.times)
        return predict(setting, _with_slow_device(cluster, setting.graph, slow.times), run), slow
    work = stage_work(setting, cluster)

    def computes(one: SlowRank) -> float:
        return one.times * work[stage_of(setting, one.rank)]

    slow = max(found.ranks, key=computes)
    longer = _longer(before, max(0.0, computes(slow) - max(work)))
    if run.asked:
        longer = msgspec.structs.replace(longer, training=whole(longer, setting, cluster, run))
    return longer, slow


def _longer(before: Prediction, seconds: float) -> Prediction:
    """The step of a pipeline with a slow rank: the others wait for it, and meanwhile samples that were late come."""
    late = max(0.0, before.breakdown.get("input", 0.0) - seconds)
    bubble = before.breakdown.get("bubble", 0.0)
    breakdown = {**before.breakdown, "bubble": bubble + seconds}
    waiting = (before.imbalance * bubble + seconds) / (bubble + seconds) if seconds else before.imbalance
    if "input" in breakdown:
        seconds -= breakdown["input"] - late
        breakdown["input"] = late
    return msgspec.structs.replace(_longer_by(before, seconds, breakdown), imbalance=waiting)


def with_wait(before: Prediction, seconds: float) -> Prediction:
    """The step with a wait in which nobody computes."""
    return _longer_by(before, seconds, {**before.breakdown, "other": before.breakdown.get("other", 0.0) + seconds})


def _longer_by(before: Prediction, seconds: float, breakdown: dict[str, float]) -> Prediction:
    times = 1 + seconds / before.step_seconds
    return msgspec.structs.replace(
        before,
        step_seconds=before.step_seconds * times,
        interval=(before.interval[0] * times, before.interval[1] * times),
        breakdown=breakdown,
        samples_per_second=before.samples_per_second / times,
        tokens_per_second=before.tokens_per_second / times,
        utilisation=before.utilisation / times,
    )


def stage_of(setting: Setting, rank: int) -> int:
    """The place of a rank on the pipeline, if there is one; the last axis has neighbours next to each other."""
    axes = setting.plan.axes
    at = next((at for at, axis in enumerate(axes) if isinstance(axis, Pipeline)), None)
    if at is None:
        return 0
    inner = math.prod(axis.world for axis in axes[at + 1 :])
    return rank // inner % axes[at].ranks


def _with_slow_device(cluster: Cluster, graph: Graph, times: float) -> Cluster:
    """The cluster whose device takes so many times as long for every layer and for the update."""
    device = cluster.device
    tops = {node.path.partition(".")[0] for _, node in graph.nodes()}
    alike = {f"{path} {way}": times for path in tops for way in ("forward", "backward")} | {"update": times}
    factors = {**alike, **{name: factor * times for name, factor in device.profiled.items()}}
    slow = msgspec.structs.replace(device, profiled=factors)
    groups = tuple(msgspec.structs.replace(group, device=slow) for group in cluster.groups)
    return msgspec.structs.replace(cluster, groups=groups)


# what is said of it


def _straggler(before: Prediction, after: Prediction, slow: SlowRank | None) -> Iterator[Bottleneck]:
    share = 1 - before.step_seconds / after.step_seconds
    if slow is not None and share >= WORTH:
        lost = f"{show_percent(share, 0)} of the step"
        why = f"rank {slow.rank} computes {slow.times:g} times as long, and all wait for it: {lost}"
        yield Bottleneck("straggler", "bottleneck", share, why, f"a plan without rank {slow.rank}, or its repair")


def _links(calm: Prediction, congested: Prediction, step: Prediction, found: Disturbance) -> Iterator[Bottleneck]:
    share = (congested.step_seconds - calm.step_seconds) / step.step_seconds
    if share < WORTH:
        return
    grown = {name: seconds - calm.breakdown.get(name, 0.0) for name, seconds in congested.breakdown.items()}
    axis = max(grown, key=lambda name: grown[name]).removeprefix("exposed.")
    if found.traffic:
        why = f"another job takes a part of the links along {axis}: {show_percent(share, 0)} of the step"
        yield Bottleneck("network congestion", "bottleneck", share, why, "other links, or another time")
    else:
        slow = max(found.links, key=lambda one: one.times)
        link = f"{slow.ends[0]}-{slow.ends[1]} is {slow.times:g} times slower"
        why = f"the link {link}, and all along {axis} wait for it: {show_percent(share, 0)} of the step"
        yield Bottleneck("slow link", "bottleneck", share, why, "its repair, or an order of ranks that does not use it")
