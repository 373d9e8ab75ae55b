"""Many plans: the best, the best batch, why not another, how far each goes."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from foretell.arguments import checked

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.model.graph import Graph
    from foretell.oracle.batches import BatchChoice
    from foretell.oracle.diff import Diff
    from foretell.oracle.scale import Scaling
    from foretell.oracle.search import SearchResult
    from foretell.oracle.whatif import WhatIf
    from foretell.oracle.why import Why
    from foretell.plan.plan import Plan
    from foretell.sweeping.sweep import Sweep


@checked
def plan(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    forward: bool = False,
    batch_per_rank: int | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    headroom: str | float | None = None,
    seconds: float | None = None,
    exhaustive: bool = False,
    top: int = 10,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> SearchResult:
    """The plan to run of all that the trainer can run, each priced as `predict` does: `foretell plan`.

    `best` is the recommended one, None if nothing fits: the simplest that fits with a `chance` of 90 % (or leaves a
    `headroom` free) and is at most 3 % slower than the `fastest`; `smaller` needs a quarter less memory. `plans` were
    priced: those that cannot win by their lower bounds are not, unless `exhaustive`. What was found in `seconds`, or
    until Ctrl-C, says `stopped`; no plan is faster than `least_seconds`. `finer` is what leading plans have besides.
    """
    from foretell.oracle import planning
    from foretell.oracle.recommend import recommend
    from foretell.oracle.refinement import refine
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        batch=batch,
        batch_per_rank=batch_per_rank,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        precision=precision,
        forward=forward,
        only=only,
        without=without,
        also=also,
        fix=fix,
        max_memory=max_memory,
        headroom=headroom,
        seconds=seconds,
        exhaustive=exhaustive,
        top=top,
        calibration=calibration,
        stack=stack,
    )
    return recommend(refine(planning.answered_best(planning.questions(request)))).found


@checked
def choose_batch(
    model: str | PathLike[str],
    on: str | Cluster,
    noise_scale: str | PathLike[str] | float,
    batch: str | Sequence[int] = "auto",
    *,
    tokens: float = 0.0,
    samples: float = 0.0,
    price: float = 0.0,
    by: str = "time",
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> BatchChoice:
    """The batch with the least time to quality, by the gradient noise scale: `foretell plan --batch auto`.

    `noise_scale` is in samples, a text with its unit, "2e6 tokens", or the record of a run that measured it. `batch`
    is "auto", a range "32..4096" or numbers. `tokens` or `samples` are what training takes with small batches; without
    them times are in units of the least number of steps. `by` is "time" or "money".
    """
    from foretell.errors import BadInput
    from foretell.oracle import batches as oracle
    from foretell.oracle.recommend import recommended_answer
    from foretell.oracle.request import read

    if by not in ("time", "money"):
        raise BadInput(f"the best batch by {by!r}", where="by", fix='"time" or "money"')
    request = read(
        model=model,
        on=on,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        precision=precision,
        only=only,
        without=without,
        also=also,
        fix=fix,
        max_memory=max_memory,
        calibration=calibration,
        stack=stack,
    )
    noise = fspath(noise_scale) if isinstance(noise_scale, PathLike) else noise_scale
    trade = oracle.tradeoff(noise, tokens, samples, oracle.sequence_of(request.model, request.seq))
    ranks = request.place.ranks
    chosen = oracle.wanted(batch, trade.noise, [ranks]) if isinstance(batch, str) else sorted(set(batch))
    return oracle.weighed([recommended_answer(request.changed(batch=each)) for each in chosen], trade, price, by)


@checked
def why(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> Why:
    """Why a plan is refused, does not fit, or loses to the best, and what would make it win: `foretell why`."""
    from foretell.oracle import why as oracle
    from foretell.oracle.planning import questions
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        batch=batch,
        plan=plan,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        only=only,
        without=without,
        also=also,
        fix=fix,
        max_memory=max_memory,
        calibration=calibration,
        stack=stack,
    )
    return oracle.why(questions(request)[0])


@checked
def diff(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    plan1: str | Plan,
    plan2: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> Diff:
    """Where two plans differ, what each difference costs, and a way from the first to the second: `foretell diff`."""
    from foretell.oracle import diff as oracle
    from foretell.oracle.planning import questions
    from foretell.oracle.request import read, read_plan

    request = read(
        model=model,
        on=on,
        batch=batch,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        calibration=calibration,
        stack=stack,
    )
    return oracle.diff(questions(request)[0], read_plan(plan1, "plan1"), read_plan(plan2, "plan2"))


@checked
def scale(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    gpus: Sequence[int],
    batch: int | None = None,
    *,
    batch_per_rank: int | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> Scaling:
    """Time, efficiency and memory of each strategy over numbers of ranks: `foretell scale`.

    With `batch` the batch stays the same (strong scaling), with `batch_per_rank` it grows with the ranks that split it.
    """
    from foretell.oracle import scale as oracle
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        batch=batch,
        batch_per_rank=batch_per_rank,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        precision=precision,
        only=only,
        without=without,
        also=also,
        fix=fix,
        max_memory=max_memory,
        calibration=calibration,
        stack=stack,
    )
    return oracle.scale(request, gpus)


@checked
def whatif(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    plan: str | Plan = "best",
    batch: int | None = None,
    *,
    again: bool = False,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> WhatIf:
    """What other hardware, batches and sequences would do to a step, and which upgrade pays: `foretell whatif`."""
    from foretell.oracle import whatif as oracle
    from foretell.oracle.planning import questions
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        batch=batch,
        plan=None if plan == "best" else plan,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        precision=precision,
        only=only,
        without=without,
        also=also,
        fix=fix,
        max_memory=max_memory,
        calibration=calibration,
        stack=stack,
    )
    return oracle.whatif(questions(request)[0], again)


@checked
def sweep(
    model: str | PathLike[str] | Sequence[str | PathLike[str]],
    on: str | Sequence[str],
    batch: int | Sequence[int],
    *,
    trainer: str | Sequence[str] = "pytorch",
    seq: int | Sequence[int] = 0,
    precision: str | Sequence[str] = "",
    plan: str | Sequence[str] = (),
    ask: str = "",
    optimizer: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = "",
    out: str | PathLike[str] | None = None,
    engine: str = "processes",
    jobs: int = 0,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> Sweep:
    """Many questions at once, each model on each cluster with each batch and trainer: `foretell sweep`.

    Without plans each cell is a search, with them each plan is predicted. Lines are in the order of the cells, the same
    for any engine and number of jobs. With a folder as `out` each answer is kept; asked again, it goes on from there.
    """
    from pathlib import Path

    from foretell.oracle.request import read
    from foretell.sweeping.sweep import Grid
    from foretell.sweeping.sweep import sweep as swept

    def several(given: Any) -> tuple[Any, ...]:
        if isinstance(given, str | int) or hasattr(given, "__fspath__"):
            return (named(given),)
        return tuple(map(named, given))

    def named(one: Any) -> str | int:
        return one if isinstance(one, int) else fspath(cast("str", one))

    grid = Grid(
        several(model),
        several(on),
        several(batch),
        several(trainer),
        several(seq),
        several(precision),
        several(plan),
        ask,
    )
    wished = read(only=only, without=without, also=also, fix=fix).search
    words = {name: getattr(wished, name) for name in ("only", "without", "also", "fixed")}
    most = max_memory if isinstance(max_memory, str) else f"{max_memory:.17g} B"
    cells = grid.cells(fspath(calibration), optimizer=optimizer, max_memory=most, stack=stack, **words)
    return swept(cells, None if out is None else Path(out), engine, jobs)
