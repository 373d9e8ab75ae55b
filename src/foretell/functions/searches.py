"""Many plans: the best, the best batch, why not another, how far each goes."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from foretell.arguments import checked
from foretell.functions._asked import question_of

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.model.graph import Graph
    from foretell.oracle.batches import BatchChoice
    from foretell.oracle.diff import Diff
    from foretell.oracle.scale import Scaling
    from foretell.oracle.search import Found
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
    batch_per_rank: int | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    top: int = 10,
    calibration: str | PathLike[str] = "",
) -> Found:
    """The best plans of all that are legal, every one of them priced as `predict` does.

    `best` is the fastest that fits, None if nothing does; `plans` are all, and can be written as a table. `finer` says
    what was chosen for the leading plans besides: the layers of each stage of a pipeline. With
    `batch_per_rank` the batch goes with the ranks that split it, and the answer is that with most samples a second.
    Ctrl-C returns what was found until then, with `complete` False.
    """
    from foretell.oracle import planning
    from foretell.oracle.finer import finer

    asked = planning.asked(
        model,
        on,
        batch,
        batch_per_rank,
        trainer=trainer,
        optimizer=optimizer,
        seq=seq,
        precision=precision,
        wishes=planning.wished(only, without, also, fix),
        max_memory=max_memory,
        top=top,
        calibration=calibration,
    )
    return finer(planning.answered_best(asked)).found


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
) -> BatchChoice:
    """The batch with the least time to quality, by the gradient noise scale: `foretell plan --batch auto`.

    `noise_scale` is in samples, a text with its unit, "2e6 tokens", or the record of a run that measured it. `batch`
    is "auto", a range "32..4096" or numbers. `tokens` or `samples` are what training takes with small batches; without
    them times are in units of the least number of steps. `by` is "time" or "money".
    """
    from foretell.errors import BadInput
    from foretell.hardware import catalog
    from foretell.oracle import batches as oracle
    from foretell.oracle.finer import answered_finely

    if by not in ("time", "money"):
        raise BadInput(f"the best batch by {by!r}", where="by", fix='"time" or "money"')
    place = catalog.cluster(on) if isinstance(on, str) else on
    name = fspath(model)
    noise = fspath(noise_scale) if isinstance(noise_scale, PathLike) else noise_scale
    trade = oracle.tradeoff(noise, tokens, samples, oracle.sequence_of(name, seq or 0))
    chosen = oracle.wanted(batch, trade.noise, [place.ranks]) if isinstance(batch, str) else sorted(set(batch))
    words = (only, without, also)
    asked = [
        question_of(name, place, each, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
        for each in chosen
    ]
    return oracle.weighed([answered_finely(one) for one in asked], trade, price, by)


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
) -> Why:
    """Why a plan is refused, does not fit, or loses to the best, and what would make it win: `foretell why`."""
    from foretell.oracle import why as oracle
    from foretell.plan.text import parse

    words = (only, without, also)
    asked = question_of(model, on, batch, trainer, optimizer, seq, "", words, fix, max_memory, calibration)
    return oracle.why(asked, parse(plan) if isinstance(plan, str) else plan)


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
) -> Diff:
    """Where two plans differ, what each difference costs, and a way from the first to the second: `foretell diff`."""
    from foretell.oracle import diff as oracle
    from foretell.oracle.trial import Trial

    trial = Trial(question_of(model, on, batch, trainer, optimizer, seq, calibration=calibration))
    return oracle.diff(trial, trial.readable(plan1, "plan1"), trial.readable(plan2, "plan2"))


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
) -> Scaling:
    """Time, efficiency and memory of each strategy over numbers of ranks: `foretell scale`.

    With `batch` the batch stays the same (strong scaling), with `batch_per_rank` it grows with the ranks that split it.
    """
    from foretell.errors import BadInput
    from foretell.oracle import scale as oracle

    if batch is not None and batch_per_rank is not None:
        raise BadInput("a batch of all ranks, and one per rank", fix="one of the two")
    words = (only, without, also)
    total = batch if batch_per_rank is None else max(1, batch_per_rank)
    asked = question_of(model, on, total, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
    return oracle.scale(asked, gpus, batch_per_rank or 0)


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
) -> WhatIf:
    """What other hardware, batches and sequences would do to a step, and which upgrade pays: `foretell whatif`."""
    from foretell.oracle import whatif as oracle
    from foretell.oracle.trial import Trial

    words = (only, without, also)
    asked = question_of(model, on, batch, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
    return oracle.whatif(asked, None if plan == "best" else Trial(asked).readable(plan, "plan"), again)


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
) -> Sweep:
    """Many questions at once, each model on each cluster with each batch and trainer: `foretell sweep`.

    Without plans each cell is a search, with them each plan is predicted. Lines are in the order of the cells, the same
    for any engine and number of jobs. With a folder as `out` each answer is kept; asked again, it goes on from there.
    """
    from pathlib import Path

    from foretell.oracle.planning import wished
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
    wishes = wished(only, without, also, fix)
    words = {name: getattr(wishes, name) for name in ("only", "without", "also", "fixed")}
    most = max_memory if isinstance(max_memory, str) else f"{max_memory:.17g} B"
    cells = grid.cells(fspath(calibration), optimizer=optimizer, max_memory=most, **words)
    return swept(cells, None if out is None else Path(out), engine, jobs)
