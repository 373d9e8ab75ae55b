"""Which calibration a prediction uses: the one that is named, or the newest of this device that is kept here."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.cost.calibrated import Calibrated, calibrated
from foretell.cost.samples import Calibration, MeasuredMachine, calibration
from foretell.errors import BadInput
from foretell.files import is_folder
from foretell.hardware.cluster import Cluster, Device
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer
from foretell.records import store
from foretell.records.home import home

NONE: Final = "none"
"""The word for no calibration, whatever is kept."""


class CalibratedPlace(NamedTuple):
    """Where plans run, after a calibration had its say."""

    cluster: Cluster
    trainer: Trainer
    notes: tuple[str, ...] = ()


class CalibratedPrediction(NamedTuple):
    """What is predicted, after a calibration had its say."""

    setting: Setting
    cluster: Cluster
    notes: tuple[str, ...]


def with_calibration(setting: Setting, cluster: Cluster, named: str = "") -> CalibratedPrediction:
    """The setting and the cluster as they were measured, where they were."""
    found = as_measured(cluster, setting.trainer, setting.plan.ranks, named)
    return CalibratedPrediction(msgspec.structs.replace(setting, trainer=found.trainer), found.cluster, found.notes)


def as_measured(cluster: Cluster, trainer: Trainer, ranks: int, named: str = "") -> CalibratedPlace:
    """A cluster, so many ranks of which are busy, and a trainer as they were measured, where they were."""
    path = file_of(cluster, named)
    if path is None:
        return CalibratedPlace(cluster, trainer)
    found = _read(path, _changed(path))
    measured = _calibrated(path, _changed(path), cluster, trainer, ranks)
    notes = () if found.complete else ("the calibration is not complete: `foretell calibrate --resume` goes on",)
    if not named:
        notes = (
            f"a calibration of {found.machine.device} is used ({found.date[:10]}); --calibration none leaves it out",
            *notes,
        )
    return CalibratedPlace(measured.cluster, measured.trainer, notes)


def file_of(cluster: Cluster, named: str = "") -> Path | None:
    """The calibration that predictions for a cluster use: the one that is named, or the newest of its device."""
    if named == NONE:
        return None
    return Path(named) if named else kept(cluster)


def device_of(named: str) -> str:
    """The device that a file is a calibration of."""
    return _read(Path(named), _changed(Path(named))).machine.device


def elsewhere(cluster: Cluster, other: Cluster, named: str) -> str:
    """What names the calibration for another cluster: a file is of one device, and for others what is kept counts."""
    return "" if named != NONE and other.device.name != cluster.device.name else named


def kept(cluster: Cluster) -> Path | None:
    """The newest calibration of this cluster's device in the folder of records."""
    folder = home()
    if cluster.mixed or not is_folder(folder):
        return None
    found = [(path, _read(path, _changed(path))) for path in folder.glob("calibration-*.json")]
    own = [(one.date, path) for path, one in found if _is_of(one.machine, cluster.device)]
    return max(own)[1] if own else None


def _is_of(machine: MeasuredMachine, device: Device) -> bool:
    """Whether a machine that was measured has this device. Cores of all processors have one name, and titles."""
    return machine.device == device.name and (machine.kind != "cpu" or machine.title == device.title)


def _changed(path: Path) -> int:
    """When a file was written; one that is not there is found out when it is read."""
    return path.stat().st_mtime_ns if path.exists() else 0


@functools.lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> Calibration:
    try:
        return calibration(store.read(path), str(path))
    except BadInput as problem:
        fix = "a file that `foretell calibrate` wrote, or --calibration none"
        raise BadInput(problem.what, where=f"--calibration, {path}", fix=problem.fix or fix) from None


@functools.lru_cache(maxsize=64)
def _calibrated(path: Path, changed: int, cluster: Cluster, trainer: Trainer, ranks: int) -> Calibrated:
    """Fitted once for many predictions."""
    return calibrated(cluster, trainer, _read(path, changed), ranks)
