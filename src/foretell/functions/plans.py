"""One plan: predicted, lowered, fitted in, written for a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from foretell.arguments import checked
from foretell.functions._asked import setting_of

if TYPE_CHECKING:
    from foretell.dialects import Written
    from foretell.hardware.cluster import Cluster
    from foretell.hardware.disturbance import Disturbance
    from foretell.model.graph import Graph
    from foretell.oracle.fit import Fit
    from foretell.oracle.predict import Prediction
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
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
    profile: str | PathLike[str] = "",
    anchor: Sequence[str | PathLike[str]] = (),
    disturbance: Disturbance | None = None,
) -> Prediction:
    """How long a step takes under a plan, what memory a rank needs, and what limits it.

    The same answer as `foretell predict`, from texts or from values; a plan that is refused is a BadInput. With tokens
    or samples to train on, its `training` is the whole run: days, goodput, and money at a price of a device an hour.
    What a run meets beside its steps (input, checkpoints, failures) is a `foretell.oracle.training.Conditions`.
    Files of `foretell calibrate`, of `foretell profile` and of measurements put what was measured in place of formulas.
    A `foretell.hardware.disturbance.Disturbance` says what is wrong with the machine.
    """
    from foretell.hardware import catalog
    from foretell.model.graph import Graph
    from foretell.oracle import predict as oracle
    from foretell.oracle import training
    from foretell.oracle.calibrations import with_calibration

    run = training.run(tokens, samples, epochs, price, conditions)
    setting = setting_of(model, on, plan, batch, trainer, optimizer, seq, batch_per_rank)
    if not profile and not anchor:
        place = catalog.cluster(on) if isinstance(on, str) else on
        question = with_calibration(setting, place, fspath(calibration))
        if disturbance:
            from foretell.oracle.disturbed import predict_disturbed

            return predict_disturbed(question.setting, question.cluster, disturbance, run)
        return oracle.predict(question.setting, question.cluster, run)
    from foretell.cli.evidence_options import Known, answered
    from foretell.cli.inputs import Given
    from foretell.errors import BadInput

    if isinstance(model, Graph) or not isinstance(on, str):
        raise BadInput("profiles and anchors are about a model and a cluster by name", fix="both as texts")
    from foretell.hardware.disturbance import CALM

    given = Given(fspath(model), str(plan), on, batch, batch_per_rank, seq, trainer, optimizer)
    known = Known(fspath(calibration), fspath(profile), tuple(fspath(one) for one in anchor))
    return answered(given, known, run, disturbance or CALM)[1]


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
    from foretell.program.expand import expand
    from foretell.program.lower import lower

    return expand(lower(setting_of(model, on, plan, batch, trainer, optimizer, seq, batch_per_rank)))


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
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
) -> Fit:
    """Whether a model fits a cluster, with which plan, how many samples at a time, and else what would.

    A whole run is asked about as in `predict`, and found in the `training` of its `prediction`.
    """
    from foretell.model.graph import Graph
    from foretell.oracle import fit as oracle
    from foretell.oracle import training

    graph = model if isinstance(model, Graph) else None
    name = model.name if isinstance(model, Graph) else fspath(model)
    run = training.run(tokens, samples, epochs, price, conditions)
    asked = oracle.wish(
        name,
        on,
        plan,
        batch=batch,
        trainer_name=trainer,
        seq=seq,
        optimizer=optimizer,
        graph=graph,
        run=run,
        calibration=fspath(calibration),
    )
    return oracle.fit(asked)


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
) -> Written:
    """A plan as the configuration of a trainer, and what the configuration leaves to something else.

    The same as `foretell export --to`: `to` is a dialect (torchtitan, megatron-lm, deepspeed, ...). A plan that the
    dialect has no words for is a BadInput.
    """
    from foretell.dialects import dialect, recipe_of, trainer_of, write
    from foretell.hardware import catalog
    from foretell.plan.plan import Plan
    from foretell.plan.text import parse

    chosen = dialect(to)
    read = plan if isinstance(plan, Plan) else parse(plan)
    setting = setting_of(model, on, read, batch, trainer or trainer_of(chosen, read), optimizer, seq, None)
    place = catalog.cluster(on) if isinstance(on, str) else on
    return write(chosen, recipe_of(setting, fspath(model), place))
