"""Convolutions: products of unfolded images, or Winograd's where they are faster.

The image is unfolded on the way into the tiles (implicit GEMM: Chetlur et al. 2014, arXiv 1410.0759), so that the
product is (positions) x (filters) over (channels x taps). In fp32, 3 x 3 windows of stride 1 run with 16 products for
four outputs instead of 36 (Lavin, Gray 2016, arXiv 1509.09308: F(2x2, 3x3)); matrix units take the direct way. Few
channels a group (depthwise) leave tiles empty: there ordinary units do the arithmetic.

It is a rough model: on five devices' DeepBench sweeps the median error is 12 to 21 % forward and 20 to 34 % backward
(studies/kernels). No grouped convolution is among them.
"""

from __future__ import annotations

from typing import Any, Final

from foretell.cost.kernels._frame import activation_width, launches_of
from foretell.cost.kernels._price import Price
from foretell.cost.kernels._reached import memory_rate, rates
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.model.operator import Sizes
from foretell.model.operators.convolution import SPACE
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, at_least

OPERATORS: Final = ("convolution",)

SHARE: Final = {"forward": 0.9, "input_gradient": 0.8, "weight_gradient": 0.65}
"""Rate of a part over that of a plain product of the same shape: DeepBench, windows of 1 x 1 and of stride 2."""

PLAIN_SHARE: Final = 0.25
"""Of the ordinary units' rate, for kernels without tiles. Not measured: low enough that tiles win wherever they are
half full, high enough that depthwise convolutions are bound by memory."""

WINOGRAD_TAPS: Final = 9
WINOGRAD_PRODUCTS: Final = 4  # of 9 for each output and pair of channels: 16 for 2 x 2 outputs
WINOGRAD_SHARE: Final = 0.8  # what its transforms leave of the rate: DeepBench, windows of 3 x 3 and stride 1


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> Price:
    """The faster of the direct way and Winograd's, or the traffic if that takes longer."""
    n, cost = action.loops, action.cost
    by = units(device, form.kernels)
    positions = _positions(n)
    taps = cost.matrix / (2 * positions * n["group"] * n["in"] * n["out"])
    share = SHARE[action.part]
    direct = product_seconds(*_shape(action.part, n, positions, taps), by) / share
    direct = _smaller(direct, cost.matrix / (_vector_rate(device, form) * PLAIN_SHARE))
    matrix, winograd = direct, _winograd(action, taps, positions, form)
    if winograd is not False:
        fast = product_seconds(*_shape(action.part, n, positions, WINOGRAD_PRODUCTS), by) / (share * WINOGRAD_SHARE)
        matrix = _where(winograd, _smaller(direct, fast), direct)
    casts = form.autocast and action.part != "input_gradient"  # of the weight on its way in, of its gradient back
    copied = n["group"] * n["in"] * n["out"] * taps * (form.weight + form.operand) if casts else 0
    own, added = _traffic(action, positions, form)
    turned = _turned(action, own, taps, device, form, trainer)
    launches = launches_of(cost, trainer.execution) + int(casts) + (2 if turned is not None else 0)
    added = added + (0 if turned is None else turned)
    rate = memory_rate(device)
    return Price(matrix, own / rate, (added + copied) / rate, device.launch_seconds * launches, launches, by.provenance)


def _turned(
    action: Compute, own: Quantity, taps: Quantity, device: Device, form: Format, trainer: Trainer
) -> Quantity | None:
    """Bytes of changing the layout of both images, there or back; nothing where channels are last anyway.

    Kernels for matrix units want channels last, tensors of most trainers have them first: cuDNN turns them before
    and after (its kernels are seen on an H200, studies/saved_on_h200). Each is read and written once more.
    """
    if form.kernels not in device.peak or getattr(trainer.fusion, "channels_last", False):
        return None
    n = action.loops
    weights = n["group"] * n["in"] * n["out"] * taps * activation_width(form)
    return 2 * at_least(own - weights, 0)


def _positions(n: Sizes) -> Quantity:
    """Windows of all samples."""
    total: Quantity = n["sample"]
    for loop in SPACE:
        if loop in n:
            total = total * n[loop]
    return total


def _shape(part: str, n: Sizes, positions: Quantity, taps: Quantity) -> tuple[Quantity, Quantity, Quantity, Quantity]:
    """m, n, k and how many of the product that a part is."""
    if part == "forward":
        return positions, n["out"], n["in"] * taps, n["group"]
    if part == "input_gradient":
        return positions, n["in"], n["out"] * taps, n["group"]
    return n["out"], n["in"] * taps, positions, n["group"]


def _vector_rate(device: Device, form: Format) -> float:
    """flop/s of the ordinary units, for kernels that use no tiles."""
    return rates(device, "fp32").flops if "fp32" in device.vector else rates(device, form.kernels).flops


def _traffic(action: Compute, positions: Quantity, form: Format) -> tuple[Quantity, Quantity]:
    """Bytes of the product's own operands, and of the kernel that adds the bias or sums its gradient up."""
    cost = action.cost
    total = cost.read + cost.written
    outputs = positions * action.loops["group"] * action.loops["out"] * activation_width(form)
    kernels = {"forward": 2 * outputs, "weight_gradient": outputs, "input_gradient": 0 * outputs}[action.part]
    added = _where(cost.launches > 1, _smaller(kernels, total), 0 * kernels)
    return total - added, added


def _winograd(action: Compute, taps: Quantity, positions: Quantity, form: Format) -> Any:
    """Whether the window is 3 x 3 with stride 1: nine taps, and about as many inputs as outputs."""
    if form.kernels != "fp32":
        return False
    n, cost = action.loops, action.cost
    own, _ = _traffic(action, positions, form)
    width = activation_width(form)
    weights = n["group"] * n["in"] * n["out"] * taps * width
    outputs = positions * n["group"] * n["out"] * width
    inputs = positions * n["group"] * n["in"] * width
    return (taps == WINOGRAD_TAPS) & (own - weights - outputs < 2 * inputs) & (cost.matrix > 0)


def _smaller(a: Quantity, b: Quantity) -> Quantity:
    return -at_least(-a, -b)


def _where(condition: Any, yes: Quantity, no: Quantity) -> Quantity:
    """One of two finite numbers; a truth counts as one, so that it holds for arrays too."""
    return yes * condition + no * (1 - condition)
