"""A kept stack: measured steps of somebody's machines and software, which correct every prediction there.

What a stack is off by is a factor on what its devices compute, one on what its messages take, and one on its host; two
runs share them as far as they have device, model, trainer and scale in common (`carried.py`). A prediction is no sum of
these three: where the host is hidden, a slower host costs nothing. So each measured step is predicted again with other
factors until they are those that all measured steps together make likely (Gauss-Newton, with what the predicted step
changes by if one of the three is slower). Devices, messages and the host of any other run are then priced with theirs,
as a calibration prices them: every search and every verb sees the same stack.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy

from foretell.cost.price import priced
from foretell.errors import BadInput, ForetellError
from foretell.files import read_bytes
from foretell.hardware.catalog import cluster as cluster_of
from foretell.hardware.cluster import Cluster, DeviceGroup, StackSays
from foretell.model.source import kept
from foretell.oracle.anchors import COMPUTE, Anchor, Swept
from foretell.oracle.bands import bands
from foretell.oracle.calibrations import NONE, device_of, file_of
from foretell.oracle.carried import RunTraits
from foretell.oracle.possible import check_measured
from foretell.oracle.posterior import Observed, conditional
from foretell.oracle.request import Request, Words, read
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer
from foretell.timeline.result import composed
from foretell.version import __version__

NEEDED: Final = ("model", "plan", "cluster", "batch")
"""What has to be known of a measured step."""

STEP: Final = 0.02
"""How much slower, as a logarithm, one of the three is made to see what the step changes by."""

ROUNDS: Final = 12
CONVERGED: Final = 1e-4
"""Of a factor's logarithm, from one round to the next."""

PACE: Final = 0.5
"""Of each step to the next solution, from where steps do not shrink."""

COMPUTING: Final = ("forward", "backward", "recompute")
"""Parts of a breakdown that only kernels take time in."""


class StackRun(msgspec.Struct, frozen=True, kw_only=True):
    """One measured step, with all that says what was run."""

    asked: dict[str, str | int]
    step_seconds: float
    computing: float = 0.0  # of these, in forward and backward passes; 0: nobody told them apart
    file: str = ""

    @property
    def measured(self) -> tuple[dict[str, str | int], float, float]:
        """What makes it another measurement than others."""
        return self.asked, self.step_seconds, self.computing


class StackReading(msgspec.Struct, frozen=True):
    """What a measured step says by the model of one version of foretell: how far it is off, and what that can be."""

    trainer: str
    device: str
    model: str
    ranks: int
    shares: tuple[float, float, float]  # what the logarithm changes by with that of computing, messages, the host
    log: float  # of measured over predicted, as if all factors were 1

    @property
    def observed(self) -> Observed:
        return Observed(RunTraits(self.trainer, self.device, self.model, self.ranks, ()), self.shares, self.log)


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Measured steps and collectives of one stack, and what they say."""

    name: str
    runs: tuple[StackRun, ...]
    sweeps: tuple[Swept, ...] = ()
    readings: tuple[StackReading, ...] = ()
    foretell: str = ""  # the version that read them
    calibrations: str = ""  # which: a digest of those that the readings were made against
    notes: tuple[str, ...] = ()  # of what was measured
    doubts: tuple[str, ...] = ()  # of how it was read


class _Asked(NamedTuple):
    """A measured step that can be predicted."""

    setting: Setting
    cluster: Cluster
    traits: RunTraits
    computes: bool  # the seconds are those of its passes alone
    seconds: float

    def log(self, logs: Sequence[float]) -> float:
        """Of the seconds that are predicted with these factors."""
        cluster, trainer = paced(self.cluster, self.setting.trainer, logs)
        setting = msgspec.structs.replace(self.setting, trainer=trainer)
        made = composed(priced(setting, cluster), cluster)
        return math.log(_computing(made.breakdown) if self.computes else made.step_seconds)


def _computing(breakdown: Mapping[str, float]) -> float:
    return sum(breakdown.get(part, 0.0) for part in COMPUTING)


# from measurements


def stack_of(name: str, anchors: Sequence[Anchor], otherwise: Mapping[str, str | int], calibration: str = "") -> Stack:
    """A stack by its measurements; `otherwise` is what was run, where they do not say."""
    return added_to(Stack(name=name, runs=()), anchors, otherwise, calibration)


def added_to(
    stack: Stack, anchors: Sequence[Anchor], otherwise: Mapping[str, str | int], calibration: str = ""
) -> Stack:
    """A stack with more measurements. What is there already is no second observation."""
    more = [_run(one, otherwise) for one in anchors if one.step_seconds]
    for run in more:
        check_measured(functools.partial(_as_asked, run, calibration), run.step_seconds, run.file or "--anchor")
    runs = [*stack.runs, *more]
    sweeps = [*stack.sweeps, *(one for anchor in anchors for one in anchor.sweeps)]
    notes = [*stack.notes, *(note for anchor in anchors for note in anchor.notes)]
    whole = msgspec.structs.replace(
        stack,
        runs=tuple({msgspec.json.encode(one.measured, order="sorted"): one for one in runs}.values()),
        sweeps=tuple(dict.fromkeys(sweeps)),
        notes=tuple(dict.fromkeys(notes)),
    )
    return read_again(whole, calibration)


def _run(anchor: Anchor, otherwise: Mapping[str, str | int]) -> StackRun:
    asked = {**otherwise, **anchor.asked}
    missing = [word for word in NEEDED if not asked.get(word)]
    if missing:
        what = f"a measured step of {anchor.step_seconds:g} s does not say its {' and '.join(missing)}"
        fix = "MODEL --on CLUSTER --plan TEXT --batch N, of all files that do not say"
        raise BadInput(what, where=anchor.file or "--anchor", fix=fix)
    computing = anchor.parts.get(COMPUTE, 0.0) or (
        _computing(anchor.parts) if {"forward", "backward"} <= anchor.parts.keys() else 0.0
    )
    return StackRun(asked=asked, step_seconds=anchor.step_seconds, computing=computing, file=anchor.file)


def _as_asked(run: StackRun, calibration: str) -> Request:
    """What was run, with the calibration of its own cluster."""
    return question_of(run.asked, _calibration_of(cluster_of(str(run.asked["cluster"])), calibration))


def question_of(asked: Mapping[str, str | int], calibration: str = "") -> Request:
    """What was run, as a question."""
    words: dict[str, Any] = {name: value for name, value in asked.items() if name in Words.__annotations__}
    graph, fingerprint = str(asked.get("graph", "")), str(asked.get("fingerprint", ""))
    found = read(**words, on=str(asked["cluster"]), calibration=calibration)
    return found.changed(graph=kept(found.model, graph, "--anchor", fingerprint)) if graph else found


def read_again(stack: Stack, calibration: str = "") -> Stack:
    """The stack as this version reads it. Steps that it refuses to predict are left out, and it says why."""
    asked: list[_Asked] = []
    doubts: list[str] = []
    for run in stack.runs:
        try:
            asked += _asked(run, stack.sweeps, calibration)
        except ForetellError as problem:
            doubts.append(f"left out: {run.file or run.asked['plan']}, {problem.what}")
    if not asked and not stack.sweeps:
        raise BadInput("; ".join(doubts) or "nothing was measured", where="--anchor", fix="a measured step")
    observed, left = _solved(asked)
    if left >= CONVERGED:
        doubts.append(f"stack {stack.name}: after {ROUNDS} rounds its factors still moved by {math.expm1(left):.1%}")
    readings = tuple(StackReading(*one.traits[:4], shares=one.shares, log=one.log) for one in observed)
    return msgspec.structs.replace(
        stack,
        readings=readings,
        foretell=__version__,
        calibrations=calibrations_of(clusters_of(stack), calibration),
        doubts=tuple(doubts),
    )


def clusters_of(stack: Stack) -> tuple[str, ...]:
    """Where its steps were measured."""
    return tuple(sorted({str(run.asked["cluster"]) for run in stack.runs}))


def calibrations_of(clusters: Iterable[str], named: str = "") -> str:
    """A digest of the calibrations that steps on these clusters are predicted with, when this one is named."""
    found = hashlib.sha256()
    for text in clusters:
        try:
            place = cluster_of(text)
            path = None if place.mixed else file_of(place, _calibration_of(place, named))
            own = _digest(path, path.stat().st_mtime_ns) if path else b""
        except ForetellError as problem:
            own = problem.what.encode()
        found.update(hashlib.sha256(own).digest())
    return found.hexdigest()[:16]


@functools.lru_cache(maxsize=16)
def _digest(path: Path, changed: int) -> bytes:
    return hashlib.sha256(read_bytes(path, "calibration")).digest()


def _calibration_of(cluster: Cluster, named: str) -> str:
    """What names the calibration of a cluster: a file is of one device, and for others what is kept counts."""
    return named if named in ("", NONE) or device_of(named) == cluster.device.name else ""


def _asked(run: StackRun, sweeps: Sequence[Swept], calibration: str) -> list[_Asked]:
    """The step, and its passes where they were timed apart. Its links are as they were timed, as in any question on
    the stack: what the timed collectives say of messages is not said again by the factors."""
    from foretell.oracle.resolve import resolve

    found = resolve(_as_asked(run, calibration))
    setting, place = found.setting, _swept(found.place, sweeps)
    traits = RunTraits(setting.trainer.name, place.device.name, found.request.model, setting.plan.ranks, ())
    step = _Asked(setting, place, traits, False, run.step_seconds)
    return [step] + ([step._replace(computes=True, seconds=run.computing)] if run.computing else [])


def _solved(asked: Sequence[_Asked]) -> tuple[list[Observed], float]:
    """What each step says where the factors are that all of them make likely, and how far these moved at last."""
    logs, pace, last = numpy.zeros((len(asked), 3)), 1.0, math.inf
    found: list[Observed] = []
    largest = 0.0
    for _ in range(ROUNDS):
        found = [_observed(one, own.tolist()) for one, own in zip(asked, logs, strict=True)]
        said = [conditional(found, one.traits, bands().carried).logs for one in asked]
        change = numpy.array(said).reshape(logs.shape) - logs
        largest = float(numpy.abs(change).max()) if len(asked) else 0.0
        if largest < CONVERGED:
            break
        pace = pace if largest < PACE * last else PACE
        logs, last = logs + pace * change, largest
    return found, largest


def _observed(one: _Asked, logs: list[float]) -> Observed:
    base = one.log(logs)
    slower = [one.log([*logs[:at], logs[at] + STEP, *logs[at + 1 :]]) for at in range(3)]
    shares = tuple((log - base) / STEP for log in slower)
    off = math.log(one.seconds) - base + sum(share * log for share, log in zip(shares, logs, strict=True))
    return Observed(one.traits, (shares[0], shares[1], shares[2]), off)


# for other runs


def says(stack: Stack, traits: RunTraits) -> StackSays:
    """What a stack says of a run."""
    found = conditional([one.observed for one in stack.readings], traits, bands().carried)
    c, m, h = (math.exp(log) for log in found.logs)
    own = bands().carried.run + bands().carried.axes
    elsewhere = all(one.device != traits.device for one in stack.readings)
    return StackSays(stack.name, len(stack.runs), (c, m, h), found.between, own, found.surprise, elsewhere)


def on_stack(stack: Stack, cluster: Cluster, trainer: Trainer, model: str, ranks: int) -> tuple[Cluster, Trainer]:
    """A cluster and a trainer as a stack has them, for a model on so many ranks."""
    if cluster.mixed:  # each of its kinds is asked about by itself, as a cluster of that kind alone (mixed.py)
        return cluster, trainer
    cluster = _swept(cluster, stack.sweeps)
    if not stack.readings:
        return cluster, trainer
    told = says(stack, RunTraits(trainer.name, cluster.device.name, model, ranks, ()))
    cluster, trainer = paced(cluster, trainer, [math.log(factor) for factor in told.factors])
    return msgspec.structs.replace(cluster, stack=told), trainer


def _swept(cluster: Cluster, sweeps: Sequence[Swept]) -> Cluster:
    """A cluster with the timed collectives that its groups can run."""
    from foretell.oracle.anchored import with_sweeps

    timed = [one for one in sweeps if one.about.ranks <= cluster.ranks]
    timed = [one for one in timed if (cluster.level_of(one.about.ranks).name == "node") == (one.nodes == 1)]
    return with_sweeps(cluster, [Anchor(form="stack", sweeps=tuple(timed))])[0] if timed else cluster


def paced(cluster: Cluster, trainer: Trainer, logs: Sequence[float]) -> tuple[Cluster, Trainer]:
    """A cluster and a trainer whose computing, messages and host take so many times as long."""
    computing, messages, host = map(math.exp, logs)
    groups = tuple(
        DeviceGroup(msgspec.structs.replace(group.device, pace=group.device.pace * computing), group.ranks)
        for group in cluster.groups
    )
    own = trainer.host
    names = ("launch", "tensor", "layer", "microbatch", "floor", "floor_tensor", "floor_pair")
    changed = {name: getattr(own, name) * host for name in names} | {"device_layer": own.device_layer * computing}
    return msgspec.structs.replace(cluster, groups=groups, pace=cluster.pace * messages), msgspec.structs.replace(
        trainer,
        host=msgspec.structs.replace(own, **changed),
        tensor=msgspec.structs.replace(trainer.tensor, hop=trainer.tensor.hop * messages),
        gradients=msgspec.structs.replace(trainer.gradients, hop=trainer.gradients.hop * messages),
        pipeline=msgspec.structs.replace(trainer.pipeline, sends=trainer.pipeline.sends / messages),
    )


def told_of(told: StackSays) -> str:
    """What an answer says of the stack that it rests on."""
    names = ("computing", "messages", "host")
    parts = ", ".join(f"{name} x{factor:.3g}" for name, factor in zip(names, told.factors, strict=True))
    return f"stack {told.name}, measured steps: {told.runs}; {parts}"
