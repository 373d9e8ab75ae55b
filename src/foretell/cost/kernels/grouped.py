"""The grouped product of experts: by a library as batched products are, or by PyTorch's own kernel.

PyTorch 2.11 has two tiles for it and no others: 64 x 128 where experts have 128 rows or fewer (or a row 128 columns or
fewer), 128 x 256 elsewhere, and never shares a sum out (aten/src/ATen/native/cuda/GroupMM.cu). With one expert on a
rank, or few tokens for each, that leaves multiprocessors idle which a plain product keeps busy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from foretell.cost.kernels import matmul
from foretell.cost.kernels._frame import activation_width, kernels_of, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.kernels._tiles import CACHE_BYTES
from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, at_least, ceil_div

OPERATORS: Final = ("grouped_matmul",)

NARROW: Final = 128
"""Rows of an expert, or columns of a row, up to which the smaller tile is taken (the same file)."""

RAMP_CYCLES: Final = 4000
"""What a tile costs a multiprocessor besides its sum, to begin and to write: fitted with the four below to 264 calls of
three parts on an H200, the half not set aside of 93 layers of experts (studies/h200_experts_and_context)."""

OPERANDS: Final = 0.6
"""Of the memory's bandwidth, where weights of many experts meet few tokens."""

PREPARED: Final = 5.5e-6
"""Seconds of the kernel before it that writes where each expert's rows begin, and of the wait for it."""


HALF: Final = 2  # bytes of a 16-bit number


class GroupedTile(NamedTuple):
    """A tile of PyTorch's grouped kernel: its sides, the length that sums are filled up to, and what it reaches."""

    rows: int
    columns: int
    step: int
    rate: float  # of the peak of the matrix units

    def seconds(self, length: Quantity, device: Device, precision: str) -> Quantity:
        """Of one multiprocessor for a tile of a sum of this length."""
        peak = device.matrix_rate(precision) / device.multiprocessors * self.rate
        fed = CACHE_BYTES * device.clock_hz / HALF
        each = max(2 * self.rows * self.columns / peak, (self.rows + self.columns) / fed)
        return ceil_div(length, self.step) * self.step * each + RAMP_CYCLES / device.clock_hz


class TiledOutputs(NamedTuple):
    """The results of a grouped product, which tiles are laid over."""

    experts: Quantity
    rows: Quantity
    columns: Quantity
    length: Quantity  # of the sum that makes each
    ragged: bool  # whether experts have other numbers of rows: their last tile is then half full on average

    def tiles(self, tile: GroupedTile) -> Quantity:
        high = at_least(self.rows / tile.rows + 0.5, 1) if self.ragged else ceil_div(self.rows, tile.rows)
        return self.experts * high * ceil_div(self.columns, tile.columns)


SMALL: Final = GroupedTile(64, 128, 128, 0.5)
LARGE: Final = GroupedTile(128, 256, 64, 0.85)


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """What the trainer's kernel costs; experts have equal shares, an imbalance is a factor on top."""
    precision = kernels_of(action.path, form)
    own = trainer.fusion.grouped == "pytorch" and "hopper" in architecture(device.architecture).words
    if not own or precision != "bf16" or activation_width(form) != HALF:
        return matmul.price(action, device, form, trainer)
    n = action.loops
    experts, ins, outs = n["expert"], n["in"], n["out"]
    rows = n["row"] / experts
    if action.part == "weight_gradient":
        matrix = _waves(TiledOutputs(experts, ins, outs, rows, ragged=False), device, precision)
    else:
        columns, length = (outs, ins) if action.part == "forward" else (ins, outs)
        matrix = _waves(TiledOutputs(experts, rows, columns, length, ragged=True), device, precision)
    x, w, y = n["row"] * ins, experts * ins * outs, n["row"] * outs
    beside, casts = matmul.casts(action.part, x, w, y, form, precision)
    launches = action.cost.launches + 1 + casts
    stream = (x + w + y) * HALF / (device.memory_bandwidth * OPERANDS)
    after = beside / memory_rate(device) + PREPARED
    return KernelPrice(matrix, stream, after, device.launch_seconds * launches, launches, "measured")


def _waves(outputs: TiledOutputs, device: Device, precision: str) -> Quantity:
    """Seconds of whole waves of tiles."""
    small, large = (
        ceil_div(outputs.tiles(tile), device.multiprocessors) * tile.seconds(outputs.length, device, precision)
        for tile in (SMALL, LARGE)
    )
    return where((outputs.rows > NARROW) & (outputs.columns > NARROW), large, small)
