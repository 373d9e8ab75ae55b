"""Which calibration a prediction uses: the one that is named, or the best of this device that is kept here.

Calibrations are records: one that is made later stands beside those before. A whole one is better than a quick one or
one of some probes, then one of this host than one of another, then a newer one. A processor's holds for its host alone.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.cost.calibrated import Calibrated, calibrated
from foretell.cost.samples import Calibration, MeasuredMachine, calibration
from foretell.errors import BadInput
from foretell.files import shown
from foretell.hardware.cluster import Cluster, Device
from foretell.plan.setting import Setting
from foretell.plan.trainer import Trainer, trainer
from foretell.records import store
from foretell.records.doubts import in_future
from foretell.records.home import home

NONE: Final = "none"
"""The word for no calibration, whatever is kept."""

USUAL: Final = "pytorch"
"""The trainer that a calibration is tried with before it is used."""


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
    path, notes = chosen(cluster, named)
    if path is None:
        return CalibratedPlace(cluster, trainer, notes)
    measured = _calibrated(path, _changed(path), cluster, trainer, ranks)
    return CalibratedPlace(measured.cluster, measured.trainer, notes)


class ChosenCalibration(NamedTuple):
    """The file that predictions use, None: there is none; and what is to be said of it and of others."""

    path: Path | None
    notes: tuple[str, ...] = ()


def chosen(cluster: Cluster, named: str = "") -> ChosenCalibration:
    """The calibration that predictions for a cluster use: the one that is named, or the best of its device."""
    if named == NONE:
        return ChosenCalibration(None)
    return _named(Path(named)) if named else _kept(cluster)


def file_of(cluster: Cluster, named: str = "") -> Path | None:
    """The file alone."""
    return chosen(cluster, named).path


def device_of(named: str) -> str:
    """The device that a file is a calibration of."""
    return _read(Path(named), _changed(Path(named))).found.machine.device


def elsewhere(cluster: Cluster, other: Cluster, named: str) -> str:
    """What names the calibration for another cluster: a file is of one device, and for others what is kept counts."""
    return "" if named != NONE and other.device.name != cluster.device.name else named


class _Candidate(NamedTuple):
    """A calibration, and what speaks against its record."""

    found: Calibration
    doubts: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether all was measured; records of before call a quick one and one of some probes complete, too."""
        return self.found.complete and not self.found.quick

    @property
    def preferred(self) -> tuple[bool, bool, int, int, str]:
        """The highest is taken. A day that has not come is no day."""
        found = self.found
        own = {platform.node(): 2, "": 1}.get(found.machine.host, 0)
        probes = len({one.probe for one in found.samples})
        return self.whole, not in_future(found.date), own, probes, found.date

    def notes(self, name: str) -> Iterator[str]:
        """What whoever uses it should know."""
        if self.doubts:
            yield f"{name}: {'; '.join(self.doubts)}"
        if not self.whole:
            kind, more = ("a quick one", "") if self.found.quick else ("not complete", " --resume")
            yield f"the calibration is {kind}: `foretell calibrate{more}` measures the rest"
        if self.whole and self.found.machine.kind == "cuda" and not self.found.under_power:
            yield (
                "its kernels ran alone, at clocks that no step keeps: products are not taken to be faster than the "
                "formula has them; `foretell calibrate --resume` times them among others, too"
            )


def _named(path: Path) -> ChosenCalibration:
    return ChosenCalibration(path, tuple(_read(path, _changed(path)).notes(shown(path))))


def _kept(cluster: Cluster) -> ChosenCalibration:
    """The best calibration of this cluster's device in the folder of records; what cannot be read is left out."""
    if cluster.mixed:
        return ChosenCalibration(None)
    own: dict[Path, _Candidate] = {}
    notes: list[str] = []
    for path in (path for path in store.files(home()) if path.name.startswith("calibration-")):
        try:
            one = _read(path, _changed(path))
        except BadInput as problem:
            notes.append(f"left out of the records: {shown(path.name)}, {problem.what}")
            continue
        if _is_of(one.found.machine, cluster.device):
            if _is_here(one.found.machine):
                own[path] = one
            else:
                notes.append(f"a calibration made on {one.found.machine.host} is not used here: {shown(path.name)}")
    best: Path | None = None
    for path in sorted(own, key=lambda path: (own[path].preferred, path.name), reverse=True):
        if best is not None:
            notes += [f"{shown(path.name)}: {doubt}" for doubt in own[path].doubts]
        elif wrong := _wrong_with(path, cluster):
            notes.append(f"left out of the records: {shown(path.name)}, {wrong}")
        else:
            best = path
    if best is None:
        return ChosenCalibration(None, tuple(notes))
    return ChosenCalibration(best, (_told(own[best].found), *own[best].notes(shown(best.name)), *notes))


def _wrong_with(path: Path, cluster: Cluster) -> str:
    """Why nothing can be made of a calibration that can be read; empty where something can."""
    try:
        _calibrated(path, _changed(path), cluster, trainer(USUAL), cluster.ranks)
    except BadInput as problem:
        return problem.what
    except (ArithmeticError, LookupError, ValueError) as problem:
        return f"its samples say nothing: {problem!r}"
    return ""


def _told(found: Calibration) -> str:
    machine = found.machine
    where = f", made on {machine.host}" if machine.host not in ("", platform.node()) else ""
    return f"a calibration of {machine.device} is used ({found.date[:10]}{where}); --calibration none leaves it out"


def _is_of(machine: MeasuredMachine, device: Device) -> bool:
    """Whether a machine that was measured has this device. Cores of all processors have one name, and titles."""
    return machine.device == device.name and (machine.kind != "cpu" or machine.title == device.title)


def _is_here(machine: MeasuredMachine) -> bool:
    """Whether what was measured holds on this host. GPUs of a kind are alike; of two processors that are called the
    same one may be busier, cooler, or a guest's share of a larger one."""
    return machine.kind != "cpu" or machine.host in ("", platform.node())


def _changed(path: Path) -> int:
    """When a file was written; one that is not there is found out when it is read."""
    return path.stat().st_mtime_ns if path.exists() else 0


@functools.lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> _Candidate:
    try:
        record, doubts = store.examined(path)
        found = calibration(record, shown(path))
        if in_future(found.date) and not in_future(record.created):
            doubts += (f"it says that it was finished on {found.date[:10]}, which has not come yet",)
        return _Candidate(found, doubts)
    except BadInput as problem:
        fix = "a file that `foretell calibrate` wrote, or --calibration none"
        raise BadInput(problem.what, where=f"--calibration, {shown(path)}", fix=problem.fix or fix) from None


@functools.lru_cache(maxsize=64)
def _calibrated(path: Path, changed: int, cluster: Cluster, trainer: Trainer, ranks: int) -> Calibrated:
    """Fitted once for many predictions."""
    return calibrated(cluster, trainer, _read(path, changed).found, ranks)
