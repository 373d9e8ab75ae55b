"""Which calibration a prediction uses: the one that is named, or the newest of this device that is kept here."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.cost.calibrated import calibrated
from foretell.cost.samples import Calibration, calibration
from foretell.hardware.cluster import Cluster
from foretell.plan.setting import Setting
from foretell.records import store
from foretell.records.home import home

NONE: Final = "none"
"""The word for no calibration, whatever is kept."""


class Question(NamedTuple):
    """What is predicted, after a calibration had its say."""

    setting: Setting
    cluster: Cluster
    notes: tuple[str, ...]


def with_calibration(setting: Setting, cluster: Cluster, named: str = "") -> Question:
    """The setting and the cluster as they were measured, where they were."""
    if named == NONE:
        return Question(setting, cluster, ())
    found = calibration(store.read(Path(named)), named) if named else kept(cluster)
    if found is None:
        return Question(setting, cluster, ())
    measured = calibrated(cluster, setting.trainer, found, setting.plan.ranks)
    notes = () if found.complete else ("the calibration is not complete: `foretell calibrate --resume` goes on",)
    if not named:
        notes = (
            f"a calibration of {found.machine.device} is kept here ({found.date[:10]}); --calibration none",
            *notes,
        )
    return Question(msgspec.structs.replace(setting, trainer=measured.trainer), measured.cluster, notes)


def kept(cluster: Cluster) -> Calibration | None:
    """The newest calibration of this cluster's device in the folder of records."""
    folder = home()
    if cluster.mixed or not folder.is_dir():
        return None
    found = (calibration(store.read(path), str(path)) for path in folder.glob("calibration-*.json"))
    own = [one for one in found if one.machine.device == cluster.device.name]
    return max(own, key=lambda one: one.date, default=None)
