"""Names of mesh axes that rules are about. *Axis* is always one of the device mesh; a tensor has *dims*."""

from __future__ import annotations

from enum import StrEnum


class AxisName(StrEnum):
    """An axis of the mesh, as plans write it; strategies may have others."""

    PP = "pp"
    DP = "dp"
    SHARD = "shard"  # the inner part of a hybrid: weights are in shares along it
    EP = "ep"
    CP = "cp"
    TP = "tp"
