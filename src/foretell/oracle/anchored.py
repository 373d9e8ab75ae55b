"""A prediction corrected by measurements: part by part, with what was wrong and by how much.

A measured step of any plan is predicted too. Where the measurement tells parts apart (kernels, messages, gaps; or the
parts of a breakdown), each part of the answer is multiplied by measured over predicted of its own. Where it does not,
computing, messages and the host are what all measured steps together make likely, and a note says how. Either way it
carries over as much as the two runs have in common (`carried.py`): all of it where they are one. Timed collectives
correct the links (`hardware/measured.py`), as a calibration does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.errors import BadInput
from foretell.hardware.cluster import PROCESSORS, Cluster, Level
from foretell.hardware.measured import Point, Surface
from foretell.oracle.anchors import COMPUTE, EXPOSED, IDLE, Anchor, Swept
from foretell.oracle.bands import bands
from foretell.oracle.carried import SeenRun, kind_of, seconds_of, traits_of, weight
from foretell.oracle.possible import LeastStep
from foretell.oracle.posterior import Posterior
from foretell.oracle.predict import LAYERS, Prediction, told_memory
from foretell.units import show_factor

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    COMPUTE: ("forward", "backward", "recompute", "optimizer"),
    IDLE: ("host", "bubble", "paging", "other", "input"),
}
"""Parts of a breakdown that a coarse measurement sees together; messages are those of every axis."""

SMALLEST: Final = 1e-3
"""Share of a step below which a part is not corrected by itself: the ratio of two small numbers is noise."""

EXPLAINED: Final = 1e-9
"""Share of a step up to which what is left of it is rounding, and no part of its own."""

Ask: TypeAlias = Callable[[Mapping[str, str | int]], Prediction]
"""Predicts a question that differs from the asked one in some words."""


class AnchorFinding(msgspec.Struct, frozen=True):
    """One part of a prediction against the same of a measurement."""

    part: str  # step, compute, exposed.dp, memory, all-reduce over 8 ranks ...
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


class Anchored(Prediction, frozen=True, kw_only=True):
    """A prediction that measurements corrected."""

    findings: tuple[AnchorFinding, ...]


def anchored(
    plain: Prediction, anchors: Sequence[Anchor], sweeps: Sequence[AnchorFinding], ask: Ask, levels: Sequence[str] = ()
) -> Anchored:
    """The prediction corrected by measured steps. `sweeps` are findings on links, which it has in it already.

    `levels` are the trainer and the software that it is based on, which say how far its runs scatter.
    """
    findings = list(sweeps)
    steps = [one for one in anchors if one.step_seconds]
    told: list[dict[str, float]] = []
    notes: list[str] = []
    memory: list[float] = []
    seen: list[SeenRun] = []
    whole: list[SeenRun] = []
    for anchor in steps:
        same = ask(anchor.asked) if anchor.asked else plain
        _check_possible(anchor, same)
        findings += _findings(anchor, same)
        log = math.log(anchor.step_seconds / same.step_seconds)
        seen.append(SeenRun(traits_of(same), seconds_of(same.breakdown), log))
        if ratios := _by_parts(anchor, same, plain):
            told.append(_corrected(anchor, same, plain, ratios))
        else:
            whole.append(seen[-1])
        if anchor.memory_bytes:
            findings.append(AnchorFinding("memory", same.memory_bytes, anchor.memory_bytes))
            memory.append(anchor.memory_bytes / same.memory_bytes)
    if whole:
        factors = Posterior(whole, bands().carried).factors(traits_of(plain))
        told.append({part: seconds * factors[kind_of(part)] for part, seconds in plain.breakdown.items()})
        notes.append(_shared_out(plain, factors, len(whole)))
    breakdown, limited = _within_peak(plain, _mean_parts(told) if told else plain.breakdown)
    plain = msgspec.structs.replace(plain, notes=(*plain.notes, *notes, *limited))
    return _answer(plain, breakdown, _mean(memory), _band(plain, seen, levels), tuple(findings))


def _least(found: Prediction, flops: float) -> float:
    """Seconds that so many FLOPs take at the peak of all ranks."""
    return flops / (found.ranks * found.peak_flops)


def _check_possible(anchor: Anchor, same: Prediction) -> None:
    """Refuse a step that is faster than its devices can multiply, or that took more memory than they have."""
    said = (same.model, same.batch, same.ranks, same.device, same.model_flops, same.peak_flops, same.precision)
    LeastStep(*said).check(anchor.step_seconds, "--anchor")
    if anchor.memory_bytes > same.capacity:
        what = f"{anchor.memory_bytes:,.0f} bytes were measured on a {same.device}, which has {same.capacity:,.0f}"
        raise BadInput(what, where="--anchor", fix="memory_bytes of one device, or without them")


def _within_peak(plain: Prediction, breakdown: dict[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """The parts, computing no faster than the device can: what another plan was faster by may not hold for this one."""
    step, least = sum(breakdown.values()), _least(plain, plain.hardware_flops)
    if step >= least or plain.device in PROCESSORS:
        return breakdown, ()
    layers = {name: seconds for name, seconds in breakdown.items() if name in LAYERS}
    longer = 1 + (least - step) / sum(layers.values())
    note = f"measurements of other plans would put this one at {least / step:.0%} of the peak: it is taken at the peak"
    return {**breakdown, **{name: seconds * longer for name, seconds in layers.items()}}, (note,)


def _mean_parts(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What several measurements make of the parts, in the mean."""
    names = dict.fromkeys(name for one in told for name in one)
    return {name: sum(one.get(name, 0.0) for one in told) / len(told) for name in names}


def _answer(
    plain: Prediction, breakdown: dict[str, float], memory: float, band: float, findings: tuple[AnchorFinding, ...]
) -> Anchored:
    step = sum(breakdown.values())
    change = step / plain.step_seconds
    peak = plain.peak_flops
    if plain.device in PROCESSORS:  # whose own peak nobody tells: at least what it did
        peak = max(peak, plain.hardware_flops / (step * plain.ranks))
    low, high = plain.interval
    width = band or math.sqrt(high / low)
    use = plain.memory
    use = msgspec.structs.replace(
        use,
        allocated=use.allocated * memory,
        reserved=use.reserved * memory,
        device=use.device * memory,
        by_stage=tuple(size * memory for size in use.by_stage),
        by_kind={kind: size * memory for kind, size in use.by_kind.items()},
    )
    fields = {name: getattr(plain, name) for name in Prediction.__struct_fields__}
    told = (
        f"{show_factor(width)} (90 % interval), by a measured run of this trainer"
        if band
        else plain.provenance["interval"]
    )
    fields |= {
        "step_seconds": step,
        "breakdown": breakdown,
        "samples_per_second": plain.samples_per_second / change,
        "tokens_per_second": plain.tokens_per_second / change,
        "peak_flops": peak,
        "utilisation": plain.model_flops / (step * plain.ranks * peak),
        "interval": (step / width, step * width),
        "band": {"anchor": width} if band else plain.band,
        "narrower": () if band else plain.narrower,
        "memory": use,
        "memory_bytes": use.device,
        **told_memory(use, plain.usable, plain.most, plain.memory_band),
        "provenance": {**plain.provenance, "interval": told},
        "findings": findings,
    }
    return Anchored(**fields)


def _findings(anchor: Anchor, same: Prediction) -> list[AnchorFinding]:
    """The step, and each part that the measurement tells."""
    found = [AnchorFinding("step", same.step_seconds, anchor.step_seconds)]
    for part, seconds in anchor.parts.items():
        said = _said(part, same)
        if max(said, seconds) >= SMALLEST * anchor.step_seconds and said > 0 and seconds > 0:
            found.append(AnchorFinding(part, said, seconds))
    return found


def _said(part: str, found: Prediction) -> float:
    """Predicted seconds of a part, or of a group of parts."""
    return sum(found.breakdown.get(key, 0.0) for key in _members(part, found))


def _members(part: str, found: Prediction) -> tuple[str, ...]:
    if part == EXPOSED:
        return tuple(key for key in found.breakdown if key.startswith("exposed."))
    return GROUPS.get(part, (part,))


def _by_parts(anchor: Anchor, same: Prediction, plain: Prediction) -> dict[str, float]:
    """Measured over predicted of each part that the measurement tells and that is no rounding."""
    ratios: dict[str, float] = {}
    for part, seconds in anchor.parts.items():
        said = _said(part, same)
        if said >= SMALLEST * same.step_seconds:
            ratios |= dict.fromkeys((*_members(part, same), *_members(part, plain)), seconds / said)
    return ratios


def _corrected(anchor: Anchor, same: Prediction, plain: Prediction, ratios: Mapping[str, float]) -> dict[str, float]:
    """The parts of the answer times measured over predicted of their own, as far as that carries over.

    What no part tells stays as it is; what the measured step has beside all that goes to `other`, in proportion. So the
    answer about the very run that was measured is what was measured.
    """
    runs, spread = (traits_of(plain), traits_of(same)), bands().carried
    explained = sum(seconds * ratios.get(key, 1.0) for key, seconds in same.breakdown.items())
    found = {
        key: seconds * ratios.get(key, 1.0) ** weight(*runs, kind_of(key), spread)
        for key, seconds in plain.breakdown.items()
    }
    left = (anchor.step_seconds / explained) ** weight(*runs, kind_of("other"), spread)
    if abs(left - 1) <= EXPLAINED:
        return found
    if left < 1:  # nothing tells which part it is
        return {key: seconds * left for key, seconds in found.items()}
    return {**found, "other": found.get("other", 0.0) + sum(found.values()) * (left - 1)}


def _shared_out(plain: Prediction, factors: Sequence[float], count: int) -> str:
    """What measured steps that tell no parts were taken to say of this one."""
    said = seconds_of(plain.breakdown)
    names = ("computing", "messages", "host")
    parts = [f"{name} x{factor:.3g}" for name, factor, own in zip(names, factors, said, strict=True) if own]
    return f"measured steps without parts: {count}; what they say of this plan is {', '.join(parts)}"


def _band(plain: Prediction, seen: Sequence[SeenRun], levels: Sequence[str]) -> float:
    """The band that is left, learnt from pairs of runs: the less of this run the measured ones tell, the wider."""
    if not seen:
        return 0.0
    low, high = plain.interval
    left = Posterior(seen, bands().carried).left_open(traits_of(plain), seconds_of(plain.breakdown))
    return left.band(math.sqrt(high / low), plain.band, levels)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


# links


def with_sweeps(cluster: Cluster, anchors: Iterable[Anchor]) -> tuple[Cluster, tuple[AnchorFinding, ...]]:
    """The cluster whose links do what collectives over them were timed to do, and what that changes."""
    points: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    findings: dict[tuple[str, int], tuple[float, float]] = {}
    for sweep in (one for anchor in anchors for one in anchor.sweeps):
        level, said = _level(sweep, cluster)
        about = sweep.about
        place = (math.log2(about.payload), math.log2(about.ranks))
        points[level.name][about.kind].append((*place, math.log(sweep.seconds / said)))
        before = findings.get((about.kind, about.ranks), (0.0, 0.0))
        findings[about.kind, about.ranks] = (before[0] + said, before[1] + sweep.seconds)
    levels = tuple(_swept(level, points[level.name]) for level in cluster.levels)
    told = tuple(AnchorFinding(f"{kind} over {ranks} ranks", *sums) for (kind, ranks), sums in findings.items())
    return msgspec.structs.replace(cluster, levels=levels), told


def _level(sweep: Swept, cluster: Cluster) -> tuple[Level, float]:
    about = sweep.about
    if about.ranks > cluster.ranks:
        what = f"collectives were timed among {about.ranks} ranks, and {cluster.text} has {cluster.ranks}"
        raise BadInput(what, where="--anchor", fix="a cluster with as many ranks")
    level = cluster.level_of(about.ranks)
    if (level.name == "node") != (sweep.nodes == 1):
        what = f"{about.ranks} ranks of {cluster.text} lie on another number of nodes than the {sweep.nodes} timed"
        raise BadInput(what, where="--anchor", fix="the cluster that was timed")
    return level, float(collective_seconds(about.kind, about.payload, Group(about.ranks), cluster).seconds)


def _swept(level: Level, points: Mapping[str, list[Point]]) -> Level:
    if not points:
        return level
    surfaces = {**level.link.measured, **{kind: Surface(tuple(own)) for kind, own in points.items()}}
    sources = {**level.link.sources, "measured": "measured: nccl-tests that were given"}
    return msgspec.structs.replace(level, link=msgspec.structs.replace(level.link, measured=surfaces, sources=sources))
