"""Algorithms side by side on one cluster, by the virtual time to a target loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from foretell.errors import BadInput, MissingExtra
from foretell.hardware.cluster import Cluster
from foretell.learning.members import composed
from foretell.learning.skew import own_rows, skew
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.summary import Summarized
from foretell.units import show_seconds
from foretell.virtual.disturbance import CALM, Disturbances
from foretell.virtual.outcome import Outcome, outcome
from foretell.virtual.pace import Disturbed, Pace, Seated, on_cluster, seats
from foretell.virtual.problem import TrainingProblem
from foretell.virtual.run_state import RunLimits
from foretell.virtual.verdict import VersusFastest, beside_fastest
from foretell.virtual.world import VirtualWorld

STAND_IN: Final = "lenet:image=16"
"""What is learnt where the model itself is too large to be learnt while somebody waits."""

SMALL: Final = 200_000
"""Parameters up to which a model is learnt itself."""

LEARNABLE: Final = ("lenet", "mlp")
"""Families that tell samples of the digits apart and keep no statistics."""

EPOCHS: Final = 40
"""Times through the samples, at most, where nobody says how many."""

FALL: Final = 0.2
"""The target, as a share of the loss at the start, where nobody says one."""

LOOKS: Final = 200

EVENTS: Final = 100
"""Of the clock for each gradient that may be taken in, at most: a run in which all fail ends too."""


SEATS: Final = ("beside", "own")
"""Where servers may lie: on the ranks of workers, as `predict` and `run` have them, or on hosts of their own."""


class Contest(NamedTuple):
    """`model` gives the times, `learns` the gradients. `rates` are tried for each run; the best counts."""

    model: str
    cluster: Cluster
    workers: tuple[int, ...]
    algorithms: tuple[str, ...]
    learns: str = ""
    task: str = "digits"
    batch: int = 8  # samples of a worker's gradient
    rates: tuple[float, ...] = (0.5,)
    momentum: float = 0.0
    target: float = 0.0
    samples: int = 0
    seed: int = 0
    trainer: str = "pytorch"
    servers: str = "beside"  # workers, on their ranks, or on hosts of their `own`
    disturbances: Disturbances = CALM
    skew: float = 0.0  # concentration of classes on workers; 0: all draw from all samples


class RunPace(msgspec.Struct, frozen=True, kw_only=True):
    """The pace that all runs had: seconds, and bytes of the model."""

    compute: float
    update: float
    reduce: float
    transmit: float  # between neighbours
    transmit_far: float  # between nodes
    bytes: float


class TunedRun(Outcome, frozen=True, kw_only=True):
    """A run with the rate that did best."""

    rate: float


class Simulation(Summarized, frozen=True, kw_only=True):
    """All runs, by workers and then by time to the target."""

    model: str
    learns: str
    cluster: str
    batch: int
    target: float
    pace: RunPace
    servers: str  # "beside" workers, on hosts of their "own", or "" where no algorithm has any
    runs: tuple[TunedRun, ...]
    fastest: dict[str, str]  # by workers
    others: dict[str, tuple[VersusFastest, ...]] = msgspec.field(default_factory=dict[str, tuple[VersusFastest, ...]])

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model} on {self.cluster}, {self.learns} learns to a loss of {self.target:.3g}"
        for one in self.runs:
            seconds = one.virtual_seconds_to_target
            yield f"{one.algorithm}, {one.workers}", "not reached" if seconds is None else show_seconds(seconds)

    def of(self, workers: int) -> list[TunedRun]:
        return [run for run in self.runs if run.workers == workers]


class OnSeveral(msgspec.Struct, frozen=True, kw_only=True):
    """The same contest on several clusters."""

    simulations: tuple[Simulation, ...]
    changes: bool  # whether another algorithm is the fastest somewhere, with as many workers


Watch: TypeAlias = Callable[[str, float], None]
"""Told again and again what runs now, and which share of all runs is done at least: most reach the target early."""


def unwatched(now: str, share: float) -> None:
    """Nobody watches."""


def on_several(asked: Sequence[Contest], watch: Watch = unwatched) -> OnSeveral:
    """All contests, and whether the winner depends on the cluster."""
    found = tuple(simulate(one, part_of(watch, at, len(asked), one.cluster.text)) for at, one in enumerate(asked))
    winners = [
        {one.fastest[str(workers)] for one in found if str(workers) in one.fastest} for workers in asked[0].workers
    ]
    return OnSeveral(simulations=found, changes=any(len(names) > 1 for names in winners))


def part_of(watch: Watch, at: int, count: int, what: str = "") -> Watch:
    """Watches the part at this place of so many that take as long."""
    return lambda now, share: watch(", ".join(filter(None, (now, what))), (at + share) / count)


def simulate(asked: Contest, watch: Watch = unwatched) -> Simulation:
    """Run every algorithm with every number of workers."""
    _check(asked)
    course = _course(asked)
    cases = [(workers, text) for workers in asked.workers for text in asked.algorithms]
    runs = [
        _best(course, workers, text, part_of(watch, at, len(cases), f"{text}, {workers} workers"))
        for at, (workers, text) in enumerate(cases)
    ]
    runs.sort(key=_order)
    fastest: dict[str, str] = {}
    others: dict[str, tuple[VersusFastest, ...]] = {}
    for workers, same in groupby(runs, key=lambda run: run.workers):
        first, *_ = ordered = list(same)
        if first.virtual_seconds_to_target is not None:
            fastest[str(workers)], others[str(workers)] = first.algorithm, beside_fastest(ordered)
    return Simulation(
        model=asked.model,
        learns=course.problem.name,
        cluster=asked.cluster.text,
        batch=asked.batch,
        target=course.target,
        pace=_timed(course.pace, asked.cluster),
        servers=asked.servers if any(composed(text).topology.servers(1) for text in asked.algorithms) else "",
        runs=tuple(runs),
        fastest=fastest,
        others=others,
    )


def _order(run: TunedRun) -> tuple[int, float, float]:
    reached = run.virtual_seconds_to_target
    return run.workers, math.inf if reached is None else reached, run.loss if math.isfinite(run.loss) else math.inf


def _check(asked: Contest) -> None:
    for text in asked.algorithms:
        composed(text)  # a slip of the pen is told before anything runs
    most = max(asked.workers)
    if most > asked.cluster.ranks:
        what = f"{most} workers on {asked.cluster.ranks} ranks of {asked.cluster.text}"
        raise BadInput(what, where="--workers", fix=f"up to {asked.cluster.ranks}, or a larger cluster")
    asked.disturbances.machine.check(min(asked.workers))
    if asked.batch < 1 or min(asked.rates) < 0 or not 0 <= asked.momentum < 1:
        raise BadInput("a batch below 1, a rate below 0 or a momentum that is no share", fix="--batch 8 --rate 0.5")
    if asked.servers not in SEATS:
        raise BadInput(f"{asked.servers!r} is no place for servers", where="--servers", fix=" or ".join(SEATS))
    check_numbers(asked.target, asked.samples, asked.seed)


def check_numbers(target: float, samples: int, seed: int) -> None:
    """Refuse what no run can have."""
    if not 0 <= target < math.inf:
        raise BadInput(f"{target} is no loss to reach", where="--target", fix="0.05, or 0: a fifth of the first")
    if samples < 0:
        raise BadInput(f"{samples} samples", where="--samples", fix="56000, or 0: 40 times all")
    if seed < 0:
        raise BadInput(f"{seed} is no seed", where="--seed", fix="0 or more")


def learnt_by(model: str) -> str:
    """The model itself if it is small and its family can be learnt, else a stand-in."""
    family = model.partition(":")[0]
    if not any(family.startswith(name) for name in LEARNABLE):
        return STAND_IN
    return model if totals(load(model, 1)).parameters <= SMALL else STAND_IN


def problem_of(text: str, task: str) -> TrainingProblem:
    """What is learnt: `squares`, or a model of the zoo."""
    if text.partition(":")[0] == "squares":
        from foretell.virtual.problems.squares import Squares

        return Squares()
    try:
        from foretell.virtual.problems.network import NetworkProblem
    except ModuleNotFoundError:
        raise MissingExtra("gradients are PyTorch's", fix="pip install 'foretell[run]', or --learn squares") from None
    return NetworkProblem(text, task)


class _Course(NamedTuple):
    """What all runs of a contest share, made once."""

    asked: Contest
    problem: TrainingProblem
    pace: Pace
    target: float


def _course(asked: Contest) -> _Course:
    problem = problem_of(asked.learns or learnt_by(asked.model), asked.task)
    pace = on_cluster(asked.model, asked.cluster, asked.batch, asked.trainer)
    machine = asked.disturbances.machine
    if machine.links or machine.traffic:
        pace = pace._replace(network=Disturbed(pace.network, machine))
    return _Course(asked, problem, pace, asked.target or FALL * problem.judged([problem.start(asked.seed)]).loss)


def _world(course: _Course, workers: int, text: str, rate: float, traced: bool = False) -> VirtualWorld:
    """One run before it begins."""
    asked, problem, pace, target = course
    what = composed(text)
    gradients = max(1, (asked.samples or EPOCHS * problem.samples) // asked.batch)
    shared = skew(workers, len(np.unique(problem.labels)), asked.skew, asked.seed) if asked.skew else None
    world = VirtualWorld(
        problem,
        what.algorithm,
        what.topology,
        what.compressor,
        pace._replace(
            network=Seated(pace.network, workers, seats(what.topology, workers, asked.cluster, asked.servers))
        ),
        workers,
        batch=asked.batch,
        rate=rate,
        momentum=asked.momentum,
        seed=asked.seed,
        disturbances=asked.disturbances,
        limits=RunLimits(gradients, loss=target, events=EVENTS * (gradients + workers)),
        look_every=max(1, gradients // LOOKS),
        traced=traced,
        rows=own_rows(problem.labels, shared, asked.batch, asked.seed) if shared else None,
    )
    world.amounts = shared.amounts if shared else ()
    return world


def _best(course: _Course, workers: int, text: str, watch: Watch) -> TunedRun:
    def runs() -> Iterator[TunedRun]:
        for at, rate in enumerate(course.asked.rates):
            world = _world(course, workers, text, rate)
            one = part_of(watch, at, len(course.asked.rates))
            one("", 0.0)
            world.run(lambda world=world, one=one: one("", min(1.0, world.absorbed / world.limits.gradients)))
            found = outcome(world, text, course.problem.name)
            yield TunedRun(**{name: getattr(found, name) for name in found.__struct_fields__}, rate=rate)

    return min(runs(), key=_order)


def traced(asked: Contest, found: Simulation, text: str) -> VirtualWorld:
    """The run of an algorithm with the most workers again, with all its spans."""
    workers = max(asked.workers)
    rate = next(run.rate for run in found.of(workers) if run.algorithm == text)
    world = _world(_course(asked), workers, text, rate, traced=True)
    world.run()
    return world


def _timed(pace: Pace, cluster: Cluster) -> RunPace:
    near, far = (sum(pace.network.flight(0, to, pace.size)) for to in (min(1, cluster.ranks - 1), cluster.ranks - 1))
    return RunPace(
        compute=pace.compute,
        update=pace.update,
        reduce=pace.reduce,
        transmit=near,
        transmit_far=far,
        bytes=pace.size,
    )
