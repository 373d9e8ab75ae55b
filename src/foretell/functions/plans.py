"""One plan: predicted, lowered, fitted in, written for a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from foretell.arguments import checked

if TYPE_CHECKING:
    from foretell.dialects import WrittenConfig
    from foretell.hardware.cluster import Cluster
    from foretell.hardware.disturbance import Disturbance
    from foretell.model.graph import Graph
    from foretell.oracle.fit import Fit
    from foretell.oracle.predict import Prediction
    from foretell.oracle.request import Request
    from foretell.oracle.training import Conditions
    from foretell.plan.plan import Plan
    from foretell.program.expanded import ExpandedProgram


@checked
def predict(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    batch_per_rank: int | None = None,
    forward: bool = False,
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
    stack: str = "",
    profile: str | PathLike[str] = "",
    anchor: Sequence[str | PathLike[str]] = (),
    disturbance: Disturbance | None = None,
) -> Prediction:
    """How long a step takes under a plan, what memory a rank needs, and what limits it.

    The same answer as `foretell predict`, from texts or from values; a plan that is refused is a BadInput. With tokens
    or samples to train on, its `training` is the whole run: days, goodput, and money at a price per GPU-hour.
    What a run meets beside its steps (input, checkpoints, failures) is a `foretell.oracle.training.Conditions`.
    Files of `foretell calibrate`, of `foretell profile` and of measurements put what was measured in place of formulas.
    A `foretell.hardware.disturbance.Disturbance` says what is wrong with the machine. With `forward` a step is the
    forward pass alone: batch inference, evaluation.
    """
    from foretell.oracle import training
    from foretell.oracle.predicted import predicted
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        plan=plan,
        batch=batch,
        batch_per_rank=batch_per_rank,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        forward=forward,
        calibration=calibration,
        stack=stack,
        profile=profile,
        anchor=anchor,
        disturbance=disturbance,
        run=training.run(tokens, samples, epochs, price, conditions),
    )
    return predicted(_of_its_batch(request))[1]


@checked
def program(
    model: str | PathLike[str] | Graph,
    plan: str | Plan,
    batch: int | None = None,
    *,
    on: str | Cluster | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    batch_per_rank: int | None = None,
) -> ExpandedProgram:
    """The program of a plan: what each rank computes, sends and holds in a step."""
    from foretell.oracle.calibrations import NONE
    from foretell.oracle.request import read
    from foretell.oracle.resolve import resolve
    from foretell.program.expand import expand
    from foretell.program.lower import lower

    request = read(
        model=model,
        on=on,
        plan=plan,
        batch=batch,
        batch_per_rank=batch_per_rank,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        calibration=NONE,
    )
    return expand(lower(resolve(_of_its_batch(request)).setting))


@checked
def fit(
    model: str | PathLike[str] | Graph,
    on: str | Cluster,
    plan: str | Plan | None = None,
    *,
    batch: int | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    forward: bool = False,
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
    stack: str = "",
) -> Fit:
    """Whether a model fits a cluster, with which plan, how many samples at a time, and else what would.

    A whole run is asked about as in `predict`, and found in the `training` of its `prediction`; so is the forward
    pass alone.
    """
    from foretell.oracle import fit as oracle
    from foretell.oracle import training
    from foretell.oracle.request import read

    request = read(
        model=model,
        on=on,
        plan=plan,
        batch=batch,
        seq=seq,
        trainer=trainer,
        optimizer=optimizer,
        forward=forward,
        calibration=calibration,
        stack=stack,
        run=training.run(tokens, samples, epochs, price, conditions),
    )
    return oracle.fit(request)


@checked
def export(
    model: str | PathLike[str],
    on: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    to: str,
    trainer: str = "",
    optimizer: str = "",
    seq: int | None = None,
) -> WrittenConfig:
    """A plan as the configuration of a trainer, and what the configuration leaves to something else.

    The same as `foretell export --to`: `to` is a dialect (torchtitan, megatron-lm, deepspeed, ...). A plan that the
    dialect cannot express is a BadInput.
    """
    from foretell.dialects import dialect, recipe_of, trainer_of, write
    from foretell.oracle.calibrations import NONE
    from foretell.oracle.request import read
    from foretell.oracle.resolve import resolve

    chosen = dialect(to)
    request = read(model=model, on=on, plan=plan, batch=batch, seq=seq, optimizer=optimizer, calibration=NONE)
    assert request.plan is not None
    asked = resolve(request.changed(trainer=trainer or trainer_of(chosen, request.plan)))
    return write(chosen, recipe_of(asked.setting, fspath(model), asked.place))


def _of_its_batch(request: Request) -> Request:
    """A graph is of one micro-batch over all ranks: nothing else can be meant by its batch."""
    from foretell.errors import BadInput

    graph, plan = request.graph, request.plan
    if graph is None or plan is None:
        return request
    if request.batch_per_rank:
        raise BadInput("a graph has its own batch", where="--batch-per-rank", fix="load the model with another")
    own = graph.batch * plan.microbatches
    if request.batch not in (0, own):
        what = f"a batch of {request.batch}, and this graph gives {plan.microbatches} micro-batches of {graph.batch}"
        raise BadInput(what, fix=f"batch={own}, or a graph for another batch")
    return request
