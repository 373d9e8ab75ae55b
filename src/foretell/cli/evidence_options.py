"""What a person measured, as options: a calibration, and measurements that correct the answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from foretell.cli.inputs import Asked, Given, read
from foretell.cli.table import table
from foretell.errors import BadInput
from foretell.hardware.disturbance import CALM, Disturbance

if TYPE_CHECKING:
    from foretell.oracle.anchored import Finding
    from foretell.oracle.predict import Prediction
    from foretell.oracle.training import Run

_OPTIONS = (
    click.option("--calibration", metavar="FILE", default="", help="What `foretell calibrate` wrote; or none."),
    click.option("--profile", metavar="FILE", default="", help="What `foretell profile` wrote about this model."),
    click.option("--anchor", "anchors", multiple=True, metavar="FILE", help="A measurement that corrects the answer."),
)


class Known(NamedTuple):
    """What was measured; empty where nothing was given."""

    calibration: str = ""
    profile: str = ""
    anchors: tuple[str, ...] = ()


def measured(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb these options; it gets them as one `Known`."""

    @functools.wraps(verb)
    def called(*given: Any, **options: Any) -> None:
        shared = {name: options.pop(name) for name in Known._fields}
        verb(*given, known=Known(**shared), **options)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def answered(given: Given, known: Known, run: Run, disturbance: Disturbance = CALM) -> tuple[Asked, Prediction]:
    """The question as the machine was measured, and its answer, corrected by what else was."""
    from foretell.oracle.anchored import anchored, with_sweeps
    from foretell.oracle.anchors import read as read_anchor
    from foretell.oracle.disturbed import predict_disturbed
    from foretell.oracle.predict import explained, predict
    from foretell.oracle.training import whole

    anchors = [read_anchor(Path(file)) for file in known.anchors]

    def question(changed: Given) -> tuple[Asked, tuple[Finding, ...]]:
        asked = as_measured(read(changed), known)
        assert asked.cluster is not None
        cluster, findings = with_sweeps(asked.cluster, anchors)
        return asked._replace(cluster=cluster), findings

    def ask(words: Mapping[str, str | int]) -> Prediction:
        asked, _ = question(_changed(given, words))
        assert asked.cluster is not None
        return msgspec.structs.replace(predict(asked.setting, asked.cluster), model=asked.model)

    asked, findings = question(given)
    assert asked.cluster is not None
    if disturbance and anchors:
        what = "a disturbance, and a measurement that corrects the answer"
        raise BadInput(what, where="--anchor", fix="one of them")
    step = predict_disturbed(asked.setting, asked.cluster, disturbance, run)
    found = msgspec.structs.replace(step, model=asked.model)
    if not anchors:
        return asked, found
    corrected = anchored(found, anchors, findings, ask)
    if run.asked:
        amount = whole(corrected, asked.setting, asked.cluster, run)
        corrected = msgspec.structs.replace(corrected, training=amount)
    return asked, explained(corrected, asked.setting, asked.cluster)


def as_measured(asked: Asked, known: Known) -> Asked:
    """The question with what was measured of the machine, where something was."""
    from foretell.oracle.calibrations import with_calibration

    assert asked.cluster is not None
    found = with_calibration(asked.setting, asked.cluster, known.calibration)
    cluster = found.cluster
    if known.profile:
        from foretell.cost.samples import profile
        from foretell.oracle.profiles import with_profile
        from foretell.records import store

        record = profile(store.read(Path(known.profile)), known.profile)
        cluster = with_profile(found.setting, cluster, asked.model, record)
    return asked._replace(setting=found.setting, cluster=cluster, notes=(*asked.notes, *found.notes))


def _changed(given: Given, words: Mapping[str, str | int]) -> Given:
    """The question that a measurement answers: where it says nothing, the asked one."""
    changes: dict[str, Any] = {**words}
    if "batch" in changes:
        changes["batch_per_rank"] = None
    return given._replace(**changes)


def findings_table(found: tuple[Finding, ...]) -> str:
    """What was predicted and what was measured, part by part."""
    rows = [
        [one.part, _amount(one, one.predicted), _amount(one, one.measured), f"{one.ratio - 1:+.1%}"] for one in found
    ]
    return table(["what was measured", "predicted", "measured", "measured over predicted"], rows)


def _amount(one: Finding, value: float) -> str:
    from foretell.units import show_bytes

    return show_bytes(value) if one.part == "memory" else f"{value:.4g} s"
