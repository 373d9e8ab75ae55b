"""What a calibration measures: one file a mechanism, each with a line on itself and its cases."""

from __future__ import annotations

from typing import Final, cast

from foretell.calibration.case import Probe
from foretell.registry import OpenSet

PROBES: Final = OpenSet(__name__, "probe")

ORDER: Final = (
    "launch",
    "matmul",
    "memory_bound",
    "collectives",
    "crowded",
    "shares",
    "normalisation",
    "attention",
    "sustained",
    "convolution",
)
"""Those that matter most come first, so that a calibration that is stopped has them."""


def probes() -> dict[str, Probe]:
    """Every probe by its name."""
    names = sorted(PROBES, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: cast("Probe", PROBES[name]) for name in names}
