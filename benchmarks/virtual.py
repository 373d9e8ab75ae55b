"""How fast virtual time goes: gradients of 1,024 workers, a million events of the clock alone, and memory.

python benchmarks/virtual.py
"""

from __future__ import annotations

import resource
import sys
import time

from foretell.learning.members import composed
from foretell.virtual.disturbance import Disturbances
from foretell.virtual.pace import even
from foretell.virtual.problem import TrainingProblem
from foretell.virtual.problems.network import NetworkProblem
from foretell.virtual.problems.nothing import Nothing
from foretell.virtual.run_state import RunLimits
from foretell.virtual.world import VirtualWorld

WORKERS, UPDATES, EVENTS = 1024, 100, 1_000_000


def made(
    text: str, problem: TrainingProblem, workers: int, limits: RunLimits, batch: int, look_every: int
) -> VirtualWorld:
    what = composed(text)
    uneven = Disturbances(jitter=0.3)
    return VirtualWorld(
        problem,
        what.algorithm,
        what.topology,
        what.compressor,
        even(1.0, 1e-5, 1e-6, 1e-6),
        workers,
        batch=batch,
        rate=0.5,
        limits=limits,
        look_every=look_every,
        disturbances=uneven,
    )


def timed(world: VirtualWorld) -> str:
    """Seconds on the wall and of the processor: on a busy machine they differ."""
    start, used = time.perf_counter(), time.process_time()
    world.run()
    return f"{time.perf_counter() - start:5.1f} s ({time.process_time() - used:.1f} s of processor)"


def peak() -> float:
    """MiB that this process had at most until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    for text in ("downpour", "sync", "gosgd"):
        clock = made(text, Nothing(), WORKERS, RunLimits(events=EVENTS), 1, 1_000_000)
        print(f"clock alone     {text:<10} {clock.engine.played or EVENTS:,} events in {timed(clock)}")
    problem = NetworkProblem("lenet:image=16", "digits")
    for text in ("downpour", "sync", "local:tau=10"):
        size = WORKERS * UPDATES
        world = made(text, problem, WORKERS, RunLimits(gradients=size), 4, size // 10)
        seconds = timed(world)
        print(
            f"real gradients  {text:<12} {WORKERS:,} workers x {UPDATES} updates in {seconds}, "
            f"loss {world.curve[0].loss:.2f} to {world.curve[-1].loss:.2f}, peak {peak():,.0f} MiB"
        )
