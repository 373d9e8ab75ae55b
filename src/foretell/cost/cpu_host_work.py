"""What the thread of a processor's rank does for weights beside kernels and messages.

A GPU's streams copy gradients to buckets and weights out of messages while it computes. A core has one thread that
computes, and that thread does all of it: nothing is beside.

- DistributedDataParallel copies every gradient into its bucket, and every sum back (PyTorch 2.13, reducer.cpp).
- From the second micro-batch on, gradients are added to those that are there (AccumulateGrad).
- FSDP2 copies weights out of what was gathered, and gradients into what is summed (_fsdp_collectives.py); the hooks
  around each unit are Python's.
- Its weights are DTensors, which the optimizer updates one by one, each line of its formula through Python.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from foretell.cost.kernels import kernel_seconds
from foretell.cost.prices import Prices
from foretell.hardware.cluster import Device
from foretell.model.operators.elementwise import Elementwise
from foretell.model.optimizer import update_rule
from foretell.program.action import Communicate, Compute, TrafficKind, Update

SHARED: Final = {"shared unit": 500.0, "shared call": 18.5}
"""The host's time for a unit of FSDP2 in a step and for an operator on a DTensor, in bare calls, where they were not
timed: the cases of `foretell calibrate --only shares,launch`, the lowest quarter of sixty on a shared core."""

BYTE: Final = "shared byte"
"""What a calibration calls the seconds of a step in which a byte of weights in shares is copied."""

VISITS: Final = 3
"""Times that a unit is taken up in a step: gathered for either pass, and summed."""


class Buckets(NamedTuple):
    """Seconds of copies for gradients that are summed in buckets."""

    filled: float
    emptied: float


class CpuHostWork:
    """Seconds of one rank's thread; of a device that is no processor, none."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.any = prices.device.is_processor

    def buckets(self, payload: float, tensors: float) -> Buckets:
        """Of gradients with so many bytes."""
        once = self._moved("copy", payload, tensors) if self.any and payload else 0.0
        return Buckets(once, once)

    def accumulated(self, size: float, tensors: float) -> float:
        """Of adding gradients of so many bytes to those of micro-batches before."""
        return self._moved("add", size, tensors) if self.any and size else 0.0

    def of_unit(self, message: Communicate) -> float:
        """Of a unit of weights in shares, around the message that gathers it or sums its gradients."""
        if not self.any:
            return 0.0
        whole = message.payload * (message.ranks if message.kind == "all-gather" else 1)
        return self._copied(whole) + host_seconds(self.prices.device, "shared unit") / VISITS

    def _copied(self, whole: float) -> float:
        """Of a unit's bytes on their way into a message or out of it: as they were timed, or a copy."""
        device = self.prices.device
        known = device.measured.get(BYTE)
        return whole * device.launch_seconds * known.factor(1, 1) / VISITS if known else self._moved("copy", whole, 1)

    def of_update(self, action: Update) -> float:
        """Of the optimizer's step on weights in shares, beside the step itself."""
        calls = update_rule(action.rule).kernels * action.tensors
        return calls * host_seconds(self.prices.device, "shared call") if self.any else 0.0

    def _moved(self, function: str, size: float, tensors: float) -> float:
        """Seconds of a copy of so many bytes, or of a sum to them, a call for each tensor.

        It goes at the pace of all of them together: one tensor may fit into a cache, but all have passed before it
        comes again.
        """
        width = self.prices.form.gradient
        sizes = {"item": max(1, round(size / width))}
        cost = Elementwise(function).forward(sizes, dict.fromkeys("xyz" if function == "add" else "xy", width))
        action = Compute("", "elementwise", "forward", sizes, cost)
        price = kernel_seconds(action, self.prices.device, self.prices.form, self.prices.trainer)
        return float(price.seconds + (tensors - 1) * price.launch)


def host_seconds(device: Device, name: str) -> float:
    """Seconds of the host that a calibration timed, or what they are by a launch of the device."""
    known = device.measured.get(name)
    return device.launch_seconds * (known.factor(1, 1) if known else SHARED[name])


def shares_weights(message: Communicate, storages: dict[str, str]) -> bool:
    """Whether a message is of FSDP2: gradients, or weights too, in shares."""
    return message.what in (TrafficKind.WEIGHTS, TrafficKind.WEIGHT_GRADIENTS) and storages.get(
        message.axes[0], ""
    ) in ("zero2", "zero3")
