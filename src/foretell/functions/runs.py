"""Training for real, and in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from foretell.arguments import checked

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.learning.tempo import Tempo
    from foretell.plan.plan import Plan
    from foretell.runtime.measure import Measurement
    from foretell.virtual.disturbance import Disturbances
    from foretell.virtual.simulate import Simulation


@checked
def run(
    model: str | PathLike[str],
    plan: str | Plan,
    batch: int = 0,
    *,
    steps: int = 20,
    task: str = "synthetic",
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    rate: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
    threads: int = 0,
    method: str = "",
    tempo: Tempo | None = None,
    noise_every: int = 0,
    timeout: float = 900.0,
) -> Measurement:
    """Train under a plan on ranks of this machine, and measure: `foretell run`, without a record.

    `method` is an algorithm of `foretell simulate` in the place of the one that the plan means, where ranks go at their
    own pace; a `foretell.learning.tempo.Tempo` says how long their gradients are to take. With `noise_every` there is a
    look at how noisy gradients are after every so many steps; `choose_batch` asks for `noise.samples`. The ranks are
    processes of their own; they end with the run, when one of them fails, and after `timeout` seconds.
    """
    from foretell.learning.tempo import FREE
    from foretell.runtime.assignment import Assignment
    from foretell.runtime.launch import Ranks
    from foretell.runtime.recording import observed

    assignment = Assignment(
        model=fspath(model),
        plan=str(plan),
        batch=batch,
        seq=seq or 0,
        trainer=trainer,
        optimizer=optimizer,
        rate=rate,
        task=task,
        steps=steps,
        seed=seed,
        device=device,
        threads=threads,
        method=method,
        tempo=tempo or FREE,
        noise_every=noise_every,
    )
    _ = assignment.setting  # one that is refused ends here, without any rank
    with Ranks() as ranks:
        reports = ranks.run(assignment, timeout)
    return observed(assignment, reports)


@checked
def simulate(
    model: str | PathLike[str],
    on: str | Cluster,
    workers: int | Sequence[int],
    algorithms: str | Sequence[str] = ("sync@replicated", "async"),
    *,
    learn: str = "",
    task: str = "digits",
    batch: int = 8,
    rate: float | Sequence[float] = 0.5,
    momentum: float = 0.0,
    target: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    trainer: str = "pytorch",
    servers: str = "beside",
    disturbances: Disturbances | None = None,
) -> Simulation:
    """Training algorithms by the virtual time to a target loss: `foretell simulate`.

    Times are those of `model` on the cluster, gradients those of `learn` (the model itself where it is small).
    `batch` is a worker's; of several rates the best counts for each algorithm. Servers lie on the ranks of the first
    workers (`beside`) or on hosts of their `own`.
    """
    from foretell.hardware import catalog
    from foretell.virtual.disturbance import CALM
    from foretell.virtual.simulate import Contest
    from foretell.virtual.simulate import simulate as simulated

    asked = Contest(
        fspath(model),
        catalog.cluster(on) if isinstance(on, str) else on,
        (workers,) if isinstance(workers, int) else tuple(workers),
        (algorithms,) if isinstance(algorithms, str) else tuple(algorithms),
        learns=learn,
        task=task,
        batch=batch,
        rates=(rate,) if isinstance(rate, int | float) else tuple(rate),
        momentum=momentum,
        target=target,
        samples=samples,
        seed=seed,
        trainer=trainer,
        servers=servers,
        disturbances=disturbances or CALM,
    )
    return simulated(asked)
