"""What a calibration timed of the host's work around wrapped modules, as a trainer has it: over a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from foretell.plan.wrapped import Wrapped

UNIT: Final = "host of a layer in shares"
SPLIT_FORWARD: Final = "host of two split products forward"
SPLIT_BACKWARD: Final = "host of two split products backward"
AGAIN: Final = "host of a layer run again"
"""What a calibration calls the seconds that each takes more than the same unwrapped, in both passes or in one."""

TENSORS: Final = 12
"""Of the layer that is timed in shares."""

FORWARD: Final = ("product_forward", "norm_forward", "message")
BACKWARD: Final = ("product_backward", "norm_backward")

TOLD: Final[tuple[tuple[str, tuple[str, ...], Callable[[Wrapped], float]], ...]] = (
    (UNIT, ("unit", "unit_tensor"), lambda known: 2 * (known.unit + TENSORS * known.unit_tensor)),
    (
        SPLIT_FORWARD,
        ("product_forward", "norm_forward", "message"),
        lambda known: 2 * known.product_forward + known.message,
    ),
    (SPLIT_BACKWARD, BACKWARD, lambda known: 2 * known.product_backward + known.message),
    (AGAIN, ("region",), lambda known: 2 * known.region),
)
"""For what was timed, the constants that follow it and what they say it takes, in launches."""


def as_timed(known: Wrapped, figure: Callable[[str], float], launch: float) -> Iterator[tuple[str, float]]:
    """The constants that were timed, each with its name; what was timed together keeps its proportions.

    `figure` says the seconds of what has a name; 0: it was not timed.
    """
    for name, constants, said in TOLD:
        if (seconds := figure(name)) and launch and said(known):
            ratio = seconds / launch / said(known)
            yield from ((constant, getattr(known, constant) * ratio) for constant in constants)
