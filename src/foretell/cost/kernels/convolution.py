"""Convolutions: products of unfolded images, by the way that a library takes.

**Matrix units.** The image is unfolded on the way into the tiles (implicit GEMM: Chetlur et al. 2014, arXiv
1410.0759), so that the product is (positions) x (filters) over (channels x taps). These kernels want channels last;
images with channels first are turned before and after. Windows of one position and stride 1 need no unfolding: they are
plain products in either layout, one for each sample where channels are first. Channels that fill no whole vector are
padded, and go to kernels of older generations.

**Ordinary units** (fp32). On devices before Hopper 3 x 3 windows of stride 1 run with 16 products for four outputs
instead of 36 (Lavin, Gray 2016, arXiv 1509.09308: F(2x2, 3x3)). Hopper has no fp32 kernels of its own, and those of its
predecessors reach less of it.

**Depthwise**: kernels without tiles, bound by instructions.

**A rank's part of a layer** has few filters, channels or rows. Tiles and steps stay as they are, so that time stops
falling with the ranks (Kahira et al. 2021, Figure 8).

How good it is: DeepBench's sweeps on five devices (studies/kernels), 1,285 calls on an H200 (studies/h200_kernels) and
7,890 of split layers (studies/h200_split_convolutions).
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from foretell.caches import forgettable
from foretell.cost.kernels._frame import activation_width, channels_last, launches_of, smaller, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import (
    VECTOR_BYTES,
    by_rows,
    cycle_seconds,
    instructions,
    layout_share,
    memory_rate,
    rates,
)
from foretell.cost.kernels._tiles import Units, product_seconds, units
from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture
from foretell.model.operator import Sizes
from foretell.model.operators.convolution import SPACE
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, at_least, ceil_div

OPERATORS: Final = ("convolution",)

SHARE: Final = {"forward": 0.9, "input_gradient": 0.8, "weight_gradient": 0.65}
"""Rate of a part over that of a plain product of the same shape: DeepBench, windows of 1 x 1 and of stride 2."""

UNTUNED: Final = {"forward": 0.72, "input_gradient": 0.52, "weight_gradient": 0.33}
"""The same in fp32 on devices without fp32 kernels of their own (H200: 43, 28 and 12 to 30 Tflop/s)."""

MATRIX_SHARE: Final = {"forward": 0.9, "input_gradient": 0.85, "weight_gradient": 0.8}
MEASURED_RATE: Final = 2950.0  # flops a cycle and multiprocessor of plain products where that was measured
"""The same in matrix units, without the turning of images: an H200, channels last. What is lost is the finding of
addresses, so many cycles a tile whatever the matrix units do: slower ones lose a smaller share."""

WINOGRAD_TAPS: Final = 9
WINOGRAD_PRODUCTS: Final = 4  # of 9 for each output and pair of channels: 16 for 2 x 2 outputs
WINOGRAD_SHARE: Final = 0.8  # what its transforms leave of the rate: DeepBench, windows of 3 x 3 and stride 1
WINOGRAD_UNTUNED: Final = {"forward": 0.5, "input_gradient": 0.5, "weight_gradient": 0.8}
"""The same of a plain product's rate where kernels are untuned (H200: Winograd's and Fourier transforms, 45 to 148
Tflop/s counted as direct work)."""
WIDE: Final = 128
"""Channels, in and out, from which on those ways are taken there forward. Gradients take them from fewer on."""

GROUPED: Final = {"forward": 0.03, "input_gradient": 0.022, "weight_gradient": 0.012}
"""Of the ordinary units' rate, in untuned fp32 with few channels a group: 32 groups of 4 to 16 channels on an H200."""
PLAIN_SHARE: Final = 0.25
"""Of the reached rate, for kernels without tiles elsewhere. Not measured by itself: low enough that tiles win wherever
they are half full; published ResNeXt steps on V100 are within 15 % with it."""
FEW: Final = 32  # channels a group under which tiles stay too empty for those kernels

TOGETHER: Final = 32  # groups, and channels of a group
LAST_GROUPED: Final = 0.1
LAST_DEPTHWISE: Final = 0.4
"""16 bits with channels last in cuDNN 8: 32 groups of up to 32 channels at a time go to matrix units, others reach a
tenth of the ordinary units' rate, and depthwise kernels 0.4 of what they do in cuDNN 9. Chosen on half of timm's models
on an RTX 3090 (42 and 128 steps); the other half (65 and 131) is 25 and 13 % off with them, 49 and 24 % without."""

PADDED_SHARE: Final = 0.5
"""Of what older kernels do, for images of few channels, padded to a whole vector: three channels on an H200."""

UNSHARED_TILE: Final = 64
"""Weights a side of the tiles of fp32 weight gradients in three dims. Their sums over positions are not shared out: few
channels leave multiprocessors idle (six layers on an H200: 70 and 113 ms where a product would take 4 and 17)."""

TURN_CYCLES: Final = {4: 0.55, 2: 0.45}
"""Cycles of a multiprocessor for an element that is turned from one layout to the other, by its bytes: cuDNN on an H200
reaches 0.73 and 0.45 of the bandwidth, about as many elements a second either way. Slower memory is the bound."""
TURN_STREAM: Final = 0.8  # of the memory's bandwidth
TURNS: Final = 3
"""Kernels that turn: both images and the weight."""


FULL: Final = 4  # bytes of an fp32 number
SUMMED: Final = 3  # times that a gradient is moved which is added to another


STEP_BYTES: Final = 64
"""Channels of one tap that are summed at a time in matrix units: a rank that has fewer of them takes as long. Of the
weight's gradient, rows of less than two such steps go to kernels of older generations."""

THIN: Final = (0.8, 0.6, 0.5)
"""What is left of the rate where a half, a quarter and less of such a step is channels."""

LEAST_TILE: Final = 64
"""Filters of the smallest tile; layers of fewer take as long (128 channels at 56: 64, 32, 16 and 8 filters in bf16 take
38, 36, 35 and 34 us on an H200)."""

BESIDES: Final = {
    4: {"forward": 3e-6, "input_gradient": 9e-6, "weight_gradient": 10e-6},
    2: {"forward": 3e-6, "input_gradient": 4e-6, "weight_gradient": 4e-6},
}
"""Seconds that windows take in Hopper's matrix units besides the product, by bytes of an element: workspaces that are
cleared, kernels that add shared sums, pipelines that fill. Two thirds of what splits in up to 64 parts measure between
events (studies/h200_split_convolutions); by the sum of kernels alone it is a third (studies/h200_kernels)."""

PLAIN_BESIDES: Final = 0.3  # of that, for the weight's gradient of windows of one position: sums are shared out


class Direct(NamedTuple):
    """A kernel without tiles: share of the ordinary units' rate, and taps that an element costs besides its own."""

    share: float
    besides: float


DEPTHWISE: Final = {
    "first": {
        "forward": Direct(0.052, 8),
        "input_gradient": Direct(0.05, 18),
        "weight_gradient": Direct(0.0187, 2),
    },
    "last fp32": {
        "forward": Direct(0.07, 2),
        "input_gradient": Direct(0.09, 5),
        "weight_gradient": Direct(0.05, 2),
    },
    "last": {
        "forward": Direct(0.15, 2),
        "input_gradient": Direct(0.084, 0),
        "weight_gradient": Direct(0.13, 2),
    },
}
"""Seven depthwise layers on an H200. Channels first, PyTorch's own kernels run; with channels last cuDNN's.
The gradient of the input visits every tap of every input, also those that a stride steps over."""

FIRST_HALF: Final = {
    "forward": Direct(0.09, 0),
    "input_gradient": Direct(0.088, 0),
    "weight_gradient": Direct(0.045, 0),
}
"""fp16, channels first, stride 1 and windows up to 5 x 5: PyTorch takes cuDNN's kernels (three layers on an H200)."""


LARGE_TAPS: Final = 25
LARGE_FP32: Final = Direct(0.0045, 0)
"""Gradient of the weight in fp32 and TF32 with channels last and windows above 5 x 5: cuDNN has no kernel for it and
falls back to a grouped one (two layers of ConvNeXt on an H200, 0.0033 to 0.0061)."""


class ConvolutionImages(NamedTuple):
    """Sizes of one convolution."""

    positions: Quantity  # windows of all samples
    area: Quantity  # windows of one sample
    taps: Quantity
    inputs: Quantity  # elements
    outputs: Quantity
    weights: Quantity
    added: Quantity  # bytes of the kernel that adds the bias, or sums gradients up
    own: Quantity  # bytes of the convolution's own operands


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """The way that the library takes, or the traffic if that takes longer."""
    n, cost, part = action.loops, action.cost, action.part
    width = activation_width(form)
    images = _images(action, form)
    last = channels_last(trainer) or action.last
    depthwise = (n["in"] == 1) & (n["out"] <= 2) & (n["group"] > 1)
    matrix_units = form.kernels in device.peak
    pointwise: Any = False
    if matrix_units:
        pointwise = (images.taps == 1) & (n["group"] == 1) & (images.inputs <= images.positions * n["in"])
        if not last:
            turned = trainer.fusion.pointwise_turned and width < FULL
            pointwise = pointwise & (images.area * width % 8 == 0) & (not turned)
        matrix = _unfolded(part, n, images, device, form)
        matrix = where(pointwise, _plain(part, n, images, last, device, form), matrix)
    else:
        ordinary = _ordinary(action, images, device, form, part in trainer.fusion.winograd)
        matrix = _in_three_dims(action, images, device, form, ordinary)
    direct = _depthwise(part, images, last, device, form)
    if last and trainer.fusion.old_groups and width < FULL:
        together = (n["group"] % TOGETHER == 0) & (n["in"] <= TOGETHER) & (n["out"] <= TOGETHER)
        alone = action.cost.matrix / (_vector_rate(device, form) * LAST_GROUPED)
        matrix = where((n["group"] == 1) | together, matrix, alone)
        direct = direct / LAST_DEPTHWISE
    matrix = where(depthwise, direct, matrix)

    casts = form.autocast and part != "input_gradient"  # of the weight on its way in, of its gradient back
    copied = images.weights * (form.weight + form.operand) if casts else 0
    turns = 0 if last or not matrix_units else 1 - ((pointwise | depthwise) * 1)
    if last and not matrix_units and not architecture(device.architecture).tuned_fp32:  # those want channels first
        turns = where((images.taps == 1) & (part == "weight_gradient"), 0, 1 - (depthwise * 1))
    turned = (images.inputs + images.outputs) * turns * _turn_seconds(device, width)
    if matrix_units and not architecture(device.architecture).tuned_fp32:
        besides = BESIDES[max(2, width)][part]
        plain = besides * PLAIN_BESIDES if part == "weight_gradient" else 0.0
        matrix = matrix + where(depthwise, 0.0, where(pointwise, plain, besides))
    launches = launches_of(cost, trainer.execution) + int(casts)  # the library starts the turns by itself, in no time
    seconds = device.launch_seconds * (launches + TURNS * turns)
    rate = memory_rate(device)
    after = (images.added + copied) / rate + turned
    provenance = rates(device, form.kernels).provenance
    return KernelPrice(matrix, images.own / rate, after, seconds, launches, provenance)


def arithmetic(action: Compute, device: Device, form: Format) -> Quantity:
    """FLOPs of the products: those that Winograd's algorithm leaves, where a library has it."""
    if form.kernels in device.peak:
        return action.cost.matrix
    fewer = action.cost.matrix * WINOGRAD_PRODUCTS / WINOGRAD_TAPS
    return where(_by_winograd(action.part, action.loops, _images(action, form), device), fewer, action.cost.matrix)


def _by_winograd(part: str, n: Sizes, images: ConvolutionImages, device: Device) -> Any:
    """Windows of 3 x 3 and stride 1; where kernels are untuned, between many channels alone."""
    taken = (images.taps == WINOGRAD_TAPS) & (images.inputs < 2 * images.positions * n["group"] * n["in"])
    if architecture(device.architecture).tuned_fp32:
        return taken
    if part == "input_gradient":
        return taken & (n["out"] >= FEW)
    if part == "weight_gradient":
        return taken & (n["in"] >= FEW) & (n["out"] >= FEW) & (n["in"] * n["out"] >= WIDE * WIDE // 2)
    return taken & (n["in"] >= WIDE) & (n["out"] >= WIDE)


def _turn_seconds(device: Device, width: int) -> float:
    """Seconds for an element that is read in one layout and written in the other."""
    return max(
        TURN_CYCLES[max(2, width)] * cycle_seconds(device, width), 2 * width / (device.memory_bandwidth * TURN_STREAM)
    )


def _images(action: Compute, form: Format) -> ConvolutionImages:
    n, cost = action.loops, action.cost
    width = activation_width(form)
    area: Quantity = 1
    for loop in SPACE:
        if loop in n:
            area = area * n[loop]
    positions = n["sample"] * area
    taps = cost.matrix / (2 * positions * n["group"] * n["in"] * n["out"])
    weights = n["group"] * n["in"] * n["out"] * taps
    outputs = positions * n["group"] * n["out"]
    total = cost.read + cost.written
    if action.part == "input_gradient":  # one that is added to another's: both are read, and their sum is written
        kernels = SUMMED / (SUMMED + 1) * at_least(total - (weights + outputs) * width, 0)
    else:
        kernels = {"forward": 2, "weight_gradient": 1}[action.part] * outputs * width
    added = where(cost.launches > 1, smaller(kernels, total), 0 * kernels)
    own = total - added
    inputs = at_least(own / width - weights - outputs, 0)
    return ConvolutionImages(positions, area, taps, inputs, outputs, weights, added, own)


def _shape(part: str, n: Sizes, positions: Quantity, taps: Quantity) -> tuple[Quantity, Quantity, Quantity, Quantity]:
    """m, n, k and how many of the product that a part is."""
    if part == "forward":
        return positions, n["out"], n["in"] * taps, n["group"]
    if part == "input_gradient":
        return positions, n["in"], n["out"] * taps, n["group"]
    return n["out"], n["in"] * taps, positions, n["group"]


def _unfolded(part: str, n: Sizes, images: ConvolutionImages, device: Device, form: Format) -> Quantity:
    """The product of the unfolded image in matrix units: on Hopper tap by tap, over channels in whole steps."""
    if architecture(device.architecture).tuned_fp32:
        return _of_vectors(part, n, images, device, form)  # generations before, whose parts of layers nobody measured
    by, width = _wide_units(device, form.kernels), activation_width(form)
    rows, columns, _, groups = _shape(part, n, images.positions, images.taps)
    share = _unfolded_share(part, device, form) * layout_share(device, form.kernels, part)
    if part == "weight_gradient":
        row = n["group"] * n["in"] * width
        older = where(row < 2 * STEP_BYTES, by_rows(device, form.kernels, 4), 1.0)
        usual = product_seconds(rows, columns, images.positions, groups, by) / (share * older)
        return where(row % VECTOR_BYTES == 0, usual, _of_vectors(part, n, images, device, form))
    summed = n["in"] if part == "forward" else n["out"]
    few = where(n["group"] == 1, summed * width / STEP_BYTES, 1.0)
    step = where(few < 1, STEP_BYTES // width, summed)
    thin = where(few >= 1, 1.0, where(few >= 0.5, THIN[0], where(few >= 0.25, THIN[1], THIN[2])))
    return product_seconds(rows, columns, step * images.taps, groups, by) / (share * thin)


def _of_vectors(part: str, n: Sizes, images: ConvolutionImages, device: Device, form: Format) -> Quantity:
    """The same where tiles are as small as those of products, and few channels are padded to a whole vector."""
    by, width = units(device, form.kernels), activation_width(form)
    vector = VECTOR_BYTES // width
    padded = {**n, "in": where(n["group"] == 1, ceil_div(n["in"], vector) * vector, n["in"])}
    whole = n["group"] * n["in"] * width % VECTOR_BYTES == 0
    share = where(
        whole,
        _unfolded_share(part, device, form) * layout_share(device, form.kernels, part),
        PADDED_SHARE * by_rows(device, form.kernels, 4),
    )
    return product_seconds(*_shape(part, padded, images.positions, images.taps), by) / share


@forgettable
@functools.lru_cache(maxsize=256)
def _wide_units(device: Device, precision: str) -> Units:
    """Without tiles of fewer than 64 filters: convolutions have none."""
    found = units(device, precision)
    return found._replace(tiles=tuple(tile for tile in found.tiles if min(tile.rows, tile.columns) >= LEAST_TILE))


def _unfolded_share(part: str, device: Device, form: Format) -> float:
    """Rate of the product of an unfolded image over that of a plain one."""
    rate = rates(device, form.kernels).flops / (device.multiprocessors * device.clock_hz)
    return 1 / (1 + (1 / MATRIX_SHARE[part] - 1) * min(1.0, rate / MEASURED_RATE))


def _plain(part: str, n: Sizes, images: ConvolutionImages, last: bool, device: Device, form: Format) -> Quantity:
    """The product that a window of one position is: of all samples at once, or one each where channels are first."""
    by, width = units(device, form.kernels), activation_width(form)
    if last:
        rows = by_rows(device, form.kernels, n["in"] * width, n["out"] * width)
        share = rows * layout_share(device, form.kernels, part)
        return product_seconds(*_shape(part, n, images.positions, 1), by) / share
    rows = by_rows(device, form.kernels, images.area * width) * layout_share(device, form.kernels, "weight_gradient")
    if part == "weight_gradient":
        return product_seconds(n["out"], n["in"], images.positions, 1, by) / (rows * SHARE[part])
    ins, outs = (n["in"], n["out"]) if part == "forward" else (n["out"], n["in"])
    return product_seconds(outs, images.area, ins, n["sample"], by) / rows


def _ordinary(action: Compute, images: ConvolutionImages, device: Device, form: Format, winograd: bool) -> Quantity:
    """Without matrix units: the product, Winograd's where it is faster, or kernels for few channels a group."""
    n, part = action.loops, action.part
    by = units(device, form.kernels)
    untuned = not architecture(device.architecture).tuned_fp32
    share = (UNTUNED if untuned else SHARE)[part]
    direct = product_seconds(*_shape(part, n, images.positions, images.taps), by) / share
    reached = WINOGRAD_UNTUNED[part] if untuned else share * WINOGRAD_SHARE
    fast = product_seconds(*_shape(part, n, images.positions, WINOGRAD_PRODUCTS), by) / reached
    direct = where(_by_winograd(part, n, images, device) & winograd, smaller(direct, fast), direct)
    if untuned:
        few = (n["group"] > 1) & (n["in"] < FEW)
        return where(few, action.cost.matrix / (_vector_rate(device, form) * GROUPED[part]), direct)
    reached = rates(device, "fp32" if "fp32" in device.vector else form.kernels).flops
    return smaller(direct, action.cost.matrix / (reached * PLAIN_SHARE))


def _in_three_dims(
    action: Compute, images: ConvolutionImages, device: Device, form: Format, matrix: Quantity
) -> Quantity:
    """A weight gradient in three dims takes at least what tiles take whose sums are not shared out."""
    if action.part != "weight_gradient" or SPACE[0] not in action.loops:
        return matrix
    return at_least(matrix, _unshared(action.loops, images, device, form))


def _unshared(n: Sizes, images: ConvolutionImages, device: Device, form: Format) -> Quantity:
    """A weight gradient whose long sum over positions one block makes alone, for each tile of weights."""
    tiles = n["group"] * ceil_div(n["out"], UNSHARED_TILE) * ceil_div(n["in"] * images.taps, UNSHARED_TILE)
    work = 2 * images.positions * n["group"] * n["out"] * n["in"] * images.taps
    return work / (rates(device, form.kernels).flops * smaller(tiles / device.multiprocessors, 1.0))


def _depthwise(part: str, images: ConvolutionImages, last: bool, device: Device, form: Format) -> Quantity:
    layout = "first" if not last else "last" if activation_width(form) < FULL else "last fp32"
    kernel = DEPTHWISE[layout][part]
    visited = images.inputs if part == "input_gradient" else images.outputs
    seconds = _direct_seconds(kernel, images.taps, visited, device, form)
    if layout == "first" and form.activation == "fp16":
        library = _direct_seconds(FIRST_HALF[part], images.taps, visited, device, form)
        taken = (images.taps <= LARGE_TAPS) & (images.inputs < 2 * images.outputs)  # stride 1
        return where(taken, library, seconds)
    if layout == "last fp32" and part == "weight_gradient" and instructions(device, activation_width(form)) == 1:
        large = _direct_seconds(LARGE_FP32, images.taps, visited, device, form)
        return where(images.taps > LARGE_TAPS, large, seconds)
    return seconds


def _direct_seconds(kernel: Direct, taps: Quantity, visited: Quantity, device: Device, form: Format) -> Quantity:
    work = 2 * (taps + kernel.besides) * visited
    return work / (kernel.share * _vector_rate(device, form)) * instructions(device, activation_width(form))


def _vector_rate(device: Device, form: Format) -> float:
    """flop/s of the ordinary units."""
    return device.vector["fp32"] if "fp32" in device.vector else device.matrix_rate(form.kernels)
