"""Measured steps held against the predicted timeline, or against traces of a run that was well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.oracle.blame import FASTEST, HEALTHY, PREDICTED, Blame, RankProfile, blame, profiles
from foretell.oracle.kernel_families import SENDS, UPDATES, message_kind, of_operator
from foretell.oracle.possible import least_step
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved, resolve
from foretell.oracle.traces import RankTrace, read
from foretell.plan.strategies.pipeline import Pipeline
from foretell.timeline.simulate import simulate

LAYERS = ("forward", "backward", "recompute")


def blamed(traces: Sequence[Path], request: Request | None, against: Sequence[Path], price: float = 0.0) -> Blame:
    """The causes, against one of both: a question that is predicted, or traces; else the ranks among themselves."""
    if request is not None and against:
        fix = "one of them: a plan to predict, or --against"
        raise BadInput("a prediction and a good run to hold a trace against", where="--against", fix=fix)
    measured = read(traces)
    if request is not None:
        asked = resolve(request)
        stages = asked.setting.plan.axis(Pipeline)
        if stages is not None and stages.ranks > 1:
            what = f"{asked.setting.plan} has stages that wait for each other: a trace is held against none of them"
            raise BadInput(what, where="--plan", fix="traces of a run that was well, instead: --against FILE")
        others = _check_same_run(measured, asked)
        found = blame(measured, [predicted_profile(asked)], PREDICTED, price)
        return msgspec.structs.replace(found, notes=(*asked.notes, *others))
    if against:
        usual = profiles(read(against))
        if len(usual) not in (1, len(measured)):
            what = f"traces of {len(measured)} ranks against {len(usual)}"
            raise BadInput(what, where="--against", fix="as many, or that of one rank for all")
        return blame(measured, usual, HEALTHY, price)
    return blame(measured, [], FASTEST, price)


def _check_same_run(measured: Sequence[RankTrace], asked: Resolved) -> tuple[str, ...]:
    """Refuse traces of another run than the one that is predicted; a note where some ranks have no trace."""
    ranks, files = asked.setting.plan.ranks, measured[0].file
    world = next((one.world for one in measured if one.world), 0)
    if (world and world != ranks) or len(measured) > ranks:
        what = f"traces of a run on {world or len(measured)} ranks, and the plan has {ranks}"
        raise BadInput(what, where=files, fix="--on, --plan and --batch of the run that was traced")
    step = min(one.step for one in profiles(measured))
    fix = "--model, --plan and --batch of the run that was traced; profiler.step() once in each whole step"
    least_step(asked.setting, asked.place).check(step, files, fix)
    some = 1 < len(measured) < ranks
    return (f"traces of {len(measured)} of {ranks} ranks: what the others are late by is not seen",) if some else ()


def predicted_profile(asked: Resolved) -> RankProfile:
    """The step of a rank as it is predicted, where all are alike."""
    from foretell.oracle.predict import predict

    step = predict(asked.setting, asked.place)
    played = simulate(priced(asked.setting, asked.place))
    kernels: dict[str, float] = defaultdict(float)
    messages: dict[str, float] = defaultdict(float)
    count = 0
    for event in played.events:
        if event.stream == "compute":
            name = UPDATES if event.category == "optimizer" else of_operator(event.name.rpartition(" ")[2])
            kernels[name] += event.seconds
            count += 1
        elif event.category in ("activations", "weights", "transfer"):
            messages[SENDS if event.category == "transfer" else message_kind(event.name)] += event.seconds
    exposed = sum(seconds for part, seconds in step.breakdown.items() if part.startswith("exposed."))
    idle = sum(step.breakdown.get(part, 0.0) for part in ("host", "other", "input"))
    return RankProfile(step.step_seconds, dict(kernels), count, exposed, idle, dict(messages))
