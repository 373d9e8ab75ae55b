"""Normalisations, by what shares a mean: a channel of all samples, or the features of a token.

Over channels (batch and instance norm) one block of threads goes through all that shares a mean, so that no more
multiprocessors work than there are channels; with channels last, all work, and instructions are the bound. Over
tokens (layer and RMS norm) each row costs a fixed time besides its bytes, and the gradient of the weight goes down the
rows one after the other. Cycles are those of 696 calls on an H200 (PyTorch 2.11 and cuDNN, studies/h200_kernels).

Trainers that fuse by hand, and compiled kernels, are priced by bytes: `traffic.py`.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, channels_last, launches_of, plain, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.cost.kernels.traffic import SIMPLE
from foretell.cost.kernels.traffic import price as by_bytes
from foretell.hardware.cluster import Device
from foretell.model.operator import OperatorPart
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, at_least, ceil_div

OPERATORS: Final = ("normalize",)

# over channels, channels first: cycles of one multiprocessor
MEMBER: Final = {"forward": 1.0, "input_gradient": 1.75}  # for an element, with as many channels as multiprocessors
ALONE: Final = {"forward": 1.05, "input_gradient": 2.85}  # with fewer: a block has too few loads under way
BLOCK: Final = 1950  # for a channel
CUDNN_HALF: Final = {"forward": 0.7, "input_gradient": 0.72}  # of these in fp16, for which cuDNN has kernels
TRANSFORM: Final = 0.5  # for an element of the second kernel that 16-bit images have, of all multiprocessors together
LAST: Final = {"forward": 1.05, "input_gradient": 1.2}  # for an element, channels last, of all together
LAST_HALF: Final = 0.55  # of these in fp16

# over tokens
ROW: Final = {"forward": 290, "input_gradient": 130, "weight_gradient": 0}  # cycles for a row
ROW_RMS: Final = 150  # the same without a mean, forward
MEANS: Final = 5  # flops an element from which on the forward pass takes a mean (model/operators/normalization.py)
BANDWIDTH: Final = {4: 0.78, 2: 0.65}  # of the memory's, by bytes of an element
DOWN: Final = 8.3  # cycles a row, one after the other, for the gradient of the weight
MANY_ROWS: Final = 65536  # from here on they are shared out
HALF: Final = 2

LINE: Final = 1 / 3
"""Of the host's time for a launch, which has a share of modules, autograd and views in it: an operator in a loop of its
own takes 7 to 18 us where a launch by our count takes 33 to 42 (studies/h200_kernels and h200_steps)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """What one kernel for it costs."""
    if trainer.execution != "eager":
        return by_bytes(action, device, form, trainer)
    cost = action.cost
    over_channels = cost.fused != 1  # the sums of a channel are kernels of their own, or those of its input's gradient
    if not plain(trainer, device) and over_channels is False:
        return by_bytes(action, device, form, trainer)
    if over_channels is False and cost.launches > 1:
        return _lines(cost, device)
    tokens = _tokens(action, device, form) if plain(trainer, device) else by_bytes(action, device, form, trainer).stream
    stream = where(over_channels, _channels(action, device, form, trainer), tokens)
    launches = launches_of(cost, trainer.execution) * (cost.launches > 0)
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")


def _lines(cost: OperatorPart, device: Device) -> KernelPrice:
    """A norm that is written out: its kernels go through memory in order, and lie in one module."""
    stream = (cost.read + cost.written) / (device.memory_bandwidth * SIMPLE)
    launches = cost.launches
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, LINE * launches, "carried over")


def _channels(action: Compute, device: Device, form: Format, trainer: Trainer) -> Quantity:
    n, cost, part = action.loops, action.cost, action.part
    moved = (cost.read + cost.written) / memory_rate(device)
    if part == "weight_gradient":  # the kernel of the input's gradient makes it too
        return moved
    elements, cycle = n["group"] * n["member"], cycle_seconds(device, activation_width(form))
    library_half = form.activation == "fp16"
    if channels_last(trainer):
        return at_least(moved, elements * LAST[part] * cycle * (LAST_HALF if library_half else 1.0))
    waves = ceil_div(n["group"], device.multiprocessors)
    each = where(n["group"] > device.multiprocessors, MEMBER[part], ALONE[part])
    each = each * (CUDNN_HALF[part] if library_half else 1.0)
    seconds = waves * (n["member"] * each + BLOCK) / device.clock_hz
    if part == "forward" and activation_width(form) <= HALF and not library_half:
        seconds = seconds + elements * TRANSFORM * cycle
    return at_least(moved, seconds)


def _tokens(action: Compute, device: Device, form: Format) -> Quantity:
    n, cost, part = action.loops, action.cost, action.part
    rows, cycle = n["group"] * (cost.launches > 0), cycle_seconds(device, activation_width(form))
    moved = (cost.read + cost.written) / (device.memory_bandwidth * BANDWIDTH[max(2, activation_width(form))])
    if part == "weight_gradient":
        return at_least(moved, rows * (rows < MANY_ROWS) * DOWN / device.clock_hz)
    fixed: Quantity = ROW[part]
    if part == "forward":
        fixed = where(cost.vector < MEANS * rows * n["member"], ROW_RMS, ROW[part])
    return moved + rows * fixed * cycle
