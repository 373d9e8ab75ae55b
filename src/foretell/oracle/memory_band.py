"""How far predicted memory can be off, reason by reason: one width for the interval and for the chance to fit.

Widths are learnt as those of times are (`oracle/bands.py`): nine in ten published numbers lie inside, every source with
the same weight, predicted without the constants that it was in view of and with the widths that the other sources
taught. `foretell validate` learns them again, and prints them with the share of each source that lies inside.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable
from typing import Final

from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture
from foretell.oracle.bands import ALWAYS
from foretell.plan.lacking import split
from foretell.plan.plan import Plan
from foretell.plan.policies.lora import Lora
from foretell.plan.trainer import Trainer, era, names, of_today

SOFTWARE, LIBRARIES, ADAPTERS = "software", "libraries", "adapters"

REASONS: Final = {
    ALWAYS: "what runs differ in that no description has",
    SOFTWARE: "what this software holds was not read in its own code",
    LIBRARIES: "work spaces of this vendor's libraries are not known",
    ADAPTERS: "what adapters make their libraries hold differs by release",
}
"""Why predicted memory can be wrong, in the order in which it is told."""

WIDTHS: Final = {ALWAYS: 0.162, SOFTWARE: 0.441, LIBRARIES: 0.648, ADAPTERS: 0.122}
"""Logarithms of factors, as they are stretched: what each reason adds, either way."""

INSIDE: Final = 0.9
"""Share of runs that shall lie inside."""

LOOKED_INTO: Final = "NVIDIA"
"""The vendor whose libraries' work spaces and contexts are known."""


def doubts(trainer: Trainer, device: Device, plan: Plan | None = None) -> tuple[str, ...]:
    """The reasons that hold for a plan of a trainer on a device; without a plan those that hold for all of them."""
    vendor = architecture(device.architecture).title.partition(" ")[0]
    told = {
        ALWAYS: True,
        SOFTWARE: is_of_another_time(trainer.name),
        LIBRARIES: not device.is_processor and vendor != LOOKED_INTO,
        ADAPTERS: plan is not None and plan.policy(Lora).rank > 0,
    }
    return tuple(reason for reason, holds in told.items() if holds)


@functools.cache
def is_of_another_time(name: str) -> bool:
    """Whether a trainer stands for software whose code was read in a later version, if at all; one's own does not."""
    base, _ = split(name)
    return base in names() and bool(era(base)) and of_today(base) == base


def band(reasons: Iterable[str]) -> dict[str, float]:
    """What each reason adds: factors, whose product lies either way."""
    return {reason: math.exp(WIDTHS[reason]) for reason in reasons}


def spread(reasons: Iterable[str]) -> float:
    """The standard deviation of the logarithm of memory as measured over as predicted."""
    return sum(WIDTHS[reason] for reason in reasons) / statistics.NormalDist().inv_cdf((1 + INSIDE) / 2)
