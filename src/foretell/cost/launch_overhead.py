"""What of a sample is the start of its kernel, on a processor, whose thread both starts and computes.

Calls are timed in turn with the caches as they are and after other data went through them. A kernel too small to
compute anything tells what a start of its kind costs, one way and the other; that is taken off all samples of the kind.
How cold the host's code is in a step is told by whole steps, and priced with launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from foretell.cost.samples import Calibration, FigureSample, Kernel, Sample, expected

START: Final = 0.25
"""Share of a sample that the formula has for its kernel, below which it is a start and little else."""


class InTurn(NamedTuple):
    """Seconds of a call by itself, and after other data went through the caches."""

    warm: float
    cold: float

    @classmethod
    def of(cls, one: Sample) -> InTurn:
        """Both means of a sample; of a single value, twice the same."""
        warm, cold = one.values[::2], one.values[1::2] or one.values
        return cls(expected(warm), expected(cold))

    def less(self, start: InTurn) -> float:
        """Seconds without a start, in the mean of both ways."""
        return (self.warm - start.warm + self.cold - start.cold) / 2


def in_turn(found: Calibration, name: str) -> InTurn | None:
    """Both means of a figure; on a processor calls are timed in turn so and so."""
    for one in found.samples:
        if isinstance(one.about, FigureSample) and one.about.name == name and len(one.values) > 1:
            return InTurn.of(one)
    return None


class TimedKernel(NamedTuple):
    """A sample of a kernel, and what the formula says of it."""

    sample: Sample
    about: Kernel
    said: float

    @property
    def kind(self) -> tuple[Any, ...]:
        """Kernels that start alike."""
        operator, about = self.about.operator, self.about
        name = operator.get("function", operator.get("kind", ""))
        return operator["operator"], name, about.parts, about.precision, about.layout


class Starts:
    """What it costs to start a kernel of each kind that was timed."""

    def __init__(self, found: Calibration, kernels: Iterable[TimedKernel]) -> None:
        calls = (("call", False), ("autograd call", True))
        self._calls = {autograd: _call(found, name) for name, autograd in calls}
        self._least: dict[tuple[Any, ...], TimedKernel] = {}
        self._several: set[tuple[Any, ...]] = set()
        for one in kernels:
            if one.kind in self._least:
                self._several.add(one.kind)
            self._least[one.kind] = min(one, self._least.get(one.kind, one), key=lambda kernel: kernel.said)

    def of(self, one: TimedKernel) -> InTurn:
        """A bare call, or the smallest kernel of the kind where that is little else than a start."""
        call, least = self._calls[one.about.autograd], self._least[one.kind]
        if one.kind not in self._several:
            return call
        seen = InTurn.of(least.sample)
        warm = max(call.warm, seen.warm - least.said if least.said < START * seen.warm else 0.0)
        return InTurn(warm, warm + max(call.cold - call.warm, seen.cold - seen.warm))


def _call(found: Calibration, name: str) -> InTurn:
    known = in_turn(found, name)
    return known or InTurn(found.figure(name), found.figure(name))
