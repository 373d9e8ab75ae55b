"""The answer for one plan: as the machine was measured, and corrected by what else was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from foretell.errors import BadInput
from foretell.hardware.disturbance import CALM
from foretell.model.source import kept
from foretell.oracle.predict import Prediction, explained, predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved, resolve
from foretell.oracle.training import STEP_ALONE, whole
from foretell.plan.strategies.data import Data
from foretell.plan.text import parse


def predicted(request: Request) -> tuple[Resolved, Prediction]:
    """One plan as `foretell predict` tells it, with what it was asked of."""
    if request.run.examples is not None:
        from foretell.oracle.padding import predicted_examples

        return predicted_examples(request, predicted)
    if request.cluster is not None and (request.cluster.mixed or _uneven(request)):
        from foretell.oracle.mixed import predicted_mixed

        return predicted_mixed(request, predicted)
    if request.measured.anchors:
        return _anchored(request)
    asked = resolve(request)
    return asked, _told(asked)


def _uneven(request: Request) -> bool:
    """Whether ranks have unequal shares of the samples."""
    data = request.plan.axis(Data) if request.plan else None
    return data is not None and bool(data.shares)


def _told(asked: Resolved) -> Prediction:
    request = asked.request
    if request.disturbance:
        from foretell.oracle.disturbed import predict_disturbed

        step: Prediction = predict_disturbed(asked.setting, asked.place, request.disturbance, request.run)
    else:
        step = predict(asked.setting, asked.place, request.run)
    return msgspec.structs.replace(step, model=request.model)


def _anchored(request: Request) -> tuple[Resolved, Prediction]:
    """Measurements of this plan, or of others, correct the answer."""
    from foretell.oracle.anchored import anchored, with_sweeps
    from foretell.oracle.anchors import measurements
    from foretell.oracle.evidence import software_levels

    anchors = [one for file in request.measured.anchors for one in measurements(Path(file))]
    if request.disturbance:
        what = "a disturbance, and a measurement that corrects the answer"
        raise BadInput(what, where="--anchor", fix="one of them")

    def ask(words: Mapping[str, str | int]) -> Prediction:
        other = resolve(_changed(request, words))
        return _told(other._replace(cluster=with_sweeps(other.place, anchors)[0]))

    asked = resolve(request)
    cluster, findings = with_sweeps(asked.place, anchors)
    doubts = (note for anchor in anchors for note in anchor.notes)
    asked = asked._replace(cluster=cluster, notes=(*asked.notes, *doubts))
    corrected = anchored(_told(asked), anchors, findings, ask, software_levels(asked.setting.trainer))
    if request.run.asked:
        amount = whole(corrected, asked.setting, cluster, request.run)
        corrected = msgspec.structs.replace(corrected, training=amount)
    return asked, explained(corrected, asked.setting, cluster)


def _changed(request: Request, words: Mapping[str, str | int]) -> Request:
    """The step that a measurement is of: where it says nothing, the asked one."""
    from foretell.oracle.request import read

    changes: dict[str, Any] = {**words}
    graph, fingerprint = (str(changes.pop(name, "")) for name in ("graph", "fingerprint"))
    if changes.get("model", request.model) != request.model:
        changes["graph"] = kept(changes["model"], graph, "--anchor", fingerprint)
    if "plan" in changes:
        changes["plan"] = parse(changes["plan"])
    if "cluster" in changes:
        changes["cluster"] = read(model=request.model, on=changes["cluster"]).cluster
    if "batch" in changes:
        changes["batch_per_rank"] = 0
    return request.changed(run=STEP_ALONE, disturbance=CALM, **changes)
