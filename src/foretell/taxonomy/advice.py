"""Which technique to use: the taxonomy's table of choices, with numbers from the oracle and from virtual runs."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from foretell.oracle import planning
from foretell.oracle.request import read
from foretell.plan.schedule import find
from foretell.virtual.pace import DoesNotFit
from foretell.virtual.simulate import Contest, Simulation, TunedRun, Watch, simulate, unwatched

SEARCHED = ("dp", "tp", "pp", "recompute")
"""What the plan beside the runs is made of: advice is about techniques, and all plans there are take minutes."""

QUICK = "mlp:inputs=64,hidden=32,layers=1"
"""What is learnt, on digits, where nobody says: a network, so that averages and stale gradients cost what they do."""

CLOSE = 0.002
"""The target on least squares, which falls to a fifth within a few steps of any algorithm."""


class Technique(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; the columns that need a large data set or a balanced model are flags."""

    title: str
    rate: str
    overlap: str
    parameters: str
    resilience: str
    reproducible: str
    large_data: bool = False
    balanced_model: bool = False
    simulate: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    schedule: str = ""  # of the pipeline that stands for it; empty: any

    def criteria(self) -> dict[str, str]:
        """The seven columns of the table, in its order."""
        return {
            "data": "large" if self.large_data else "",
            "model": "even" if self.balanced_model else "",
            "rate": self.rate,
            "overlap": self.overlap,
            "parameters": self.parameters,
            "resilience": self.resilience,
            "reproducible": self.reproducible,
        }

    def needs(self) -> tuple[str, ...]:
        """What it asks for, in words."""
        asks = ["a large, balanced data set"] if self.large_data else []
        asks += ["a model that can be cut evenly"] if self.balanced_model else []
        return (*asks, f"{self.rate} rates as it grows", f"{self.reproducible} to reproduce")


class TechniqueChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A technique on this cluster: its best algorithm, the time to the target, and how much longer than the best."""

    technique: str
    title: str
    algorithm: str
    seconds_to_target: float | None
    costs: float | None  # times as long as the best; None: not reached
    idle: float
    needs: tuple[str, ...]
    criteria: dict[str, str]  # the seven columns of the taxonomy's table 2


class ModelCut(msgspec.Struct, frozen=True, kw_only=True):
    """A technique that cuts the model: its fastest plan. It learns what one rank alone would, so steps say it all; but
    where mini-batches are pipelined, weights are `stale` updates old on the first stage."""

    technique: str
    title: str
    plan: str  # empty: none fits
    step_seconds: float | None
    costs: float | None  # times as long as a step of the fastest plan of all
    stale: int
    needs: tuple[str, ...]
    criteria: dict[str, str]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to use, why, and what it costs to be wrong. `plan` is the fastest step of all plans that fit."""

    model: str
    cluster: str
    workers: int
    learns: str  # whose losses are compared
    fits_one: bool  # a whole copy on each rank
    plan: str
    step_seconds: float | None
    use: str
    why: tuple[str, ...]
    choices: tuple[TechniqueChoice, ...]
    cuts: tuple[ModelCut, ...] = ()


@functools.cache
def techniques() -> Mapping[str, Technique]:
    found = tomllib.loads((Path(__file__).parent / "techniques.toml").read_text())
    return msgspec.convert(found, dict[str, Technique])


def learnt() -> str:
    """The network, where there is PyTorch to learn it; else least squares."""
    return QUICK if find_spec("torch") else "squares"


def advise(asked: Contest, watch: Watch = unwatched) -> Advice:
    """Weigh the techniques by virtual time to a target; `asked` has one number of workers, and no algorithms yet."""
    watch("the fastest plans", 0.0)
    best = _fastest(asked, SEARCHED)
    cuts = tuple(_cut(asked, name, one, best) for name, one in techniques().items() if one.cut)
    if asked.learns == "squares" and not asked.target:
        asked = asked._replace(target=CLOSE)
    texts = tuple(text for one in techniques().values() for text in one.simulate)
    try:
        runs = simulate(asked._replace(algorithms=texts), watch)
    except DoesNotFit:
        runs = None
    choices = _choices(runs) if runs else ()
    return Advice(
        model=asked.model,
        cluster=asked.cluster.text,
        workers=max(asked.workers),
        learns=runs.learns if runs else "",
        fits_one=runs is not None,
        plan=best.plan if best else "",
        step_seconds=best.step_seconds if best else None,
        use=choices[0].algorithm if choices and choices[0].costs is not None else best.plan if best else "",
        why=tuple(_why(asked, runs, choices)),
        choices=choices,
        cuts=cuts,
    )


def _fastest(asked: Contest, words: tuple[str, ...], fixed: str = "") -> Any:
    """The fastest plan that is made of these; none where none fits."""
    batch = asked.batch * max(asked.workers)
    request = read(model=asked.model, on=asked.cluster, batch=batch, trainer=asked.trainer, only=words, fix=fixed)
    return planning.answered_best([request]).found.best


def _cut(asked: Contest, name: str, technique: Technique, best: Any) -> ModelCut:
    ranks = asked.cluster.ranks
    fixed = f"pp{ranks}:{technique.schedule}" if technique.schedule else ""
    own = _fastest(asked, (*technique.cut, "recompute"), fixed)
    stale = find(technique.schedule).staleness(0, ranks) if fixed else 0
    return ModelCut(
        technique=name,
        title=technique.title,
        plan=own.plan if own else "",
        step_seconds=own.step_seconds if own else None,
        costs=own.step_seconds / best.step_seconds if own and best else None,
        stale=stale,
        needs=(*technique.needs(), *([f"weights up to {stale} updates old"] if stale else [])),
        criteria=technique.criteria(),
    )


def _choices(runs: Simulation) -> tuple[TechniqueChoice, ...]:
    times = [run.virtual_seconds_to_target for run in runs.runs]
    least = min((seconds for seconds in times if seconds is not None), default=math.inf)
    found: list[TechniqueChoice] = []
    for name, technique in techniques().items():
        own = [run for run in runs.runs if run.algorithm in technique.simulate]
        if own:
            found.append(_choice(name, technique, own[0], least))  # runs are in the order of their times
    return tuple(sorted(found, key=lambda one: math.inf if one.costs is None else one.costs))


def _choice(name: str, technique: Technique, run: TunedRun, least: float) -> TechniqueChoice:
    reached = run.virtual_seconds_to_target
    return TechniqueChoice(
        technique=name,
        title=technique.title,
        algorithm=run.algorithm,
        seconds_to_target=reached,
        costs=None if reached is None else _costs(reached, least),
        idle=run.idle,
        needs=technique.needs(),
        criteria=technique.criteria(),
    )


def _costs(seconds: float, least: float) -> float:
    return 1.0 if seconds == least else seconds / least  # all alike where the target is met at the start, after 0 s


def _why(asked: Contest, runs: Simulation | None, choices: tuple[TechniqueChoice, ...]) -> list[str]:
    if runs is None:
        return ["the model does not fit a rank: it has to be cut, and the fastest plan that fits says how"]
    pace = runs.pace
    ratio = pace.transmit_far / pace.compute
    said = [f"one model travels between ranks in {ratio:.2g} of the time of a gradient"]
    if asked.disturbances.random or asked.disturbances.slow:
        said.append("workers are uneven: whoever waits for all waits for the slowest")
    reached = [one for one in choices if one.costs is not None]
    if reached and reached[-1].seconds_to_target == 0:
        said.append("the target is met before the first gradient: a lower --target tells techniques apart")
    elif len(reached) > 1:
        last = reached[-1]
        said.append(f"the worst choice that gets there, {last.algorithm}, takes {last.costs or 0:.1f} times as long")
    lost = [one.algorithm for one in choices if one.costs is None]
    return [*said, *([f"not reached: {', '.join(lost)}"] if lost else [])]
