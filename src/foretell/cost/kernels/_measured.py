"""Prices as a calibration of the device has them: the formula's seconds times measured over formula.

A calibrated device carries surfaces (`hardware/measured.py`) by kind of kernel: operator, variant, part, precision.
They correct what a kernel does, not what it costs to start it: that is `launch_seconds`, which is measured too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from foretell.cost.kernels._frame import channels_last, smaller
from foretell.cost.kernels._price import ORIGINS, KernelPrice
from foretell.hardware.cluster import Device
from foretell.hardware.measured import Surface
from foretell.model.autocast import PRODUCTS
from foretell.model.operator import OperatorPart
from foretell.model.operators.matmul import IN_PIECES
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute, Update
from foretell.units import Quantity, at_least

ALIKE: Final = {
    "grouped_matmul": "matmul",
    "recurrent": "matmul",
    "recurrent_call": "matmul",
    IN_PIECES: "matmul",
    "tf32": "fp32",
}
"""What stands in for kinds of kernels and precisions that were not timed by themselves."""

LAUNCH: Final = ("launch forward", "launch backward")
"""What starting a kernel costs over `launch_seconds` when other data went through the caches since: the host's code has
to come back into them. On processors only, where one thread does both."""

AGAIN: Final = 10
"""Kernels after which the same code of the host runs again, about: a layer of the zoo's models starts 7 (a block of
ResNet-18) to 24 (one of Llama) in its forward pass."""

STORED: Final = 4
"""Fused kernels from which on an attention stores its scores (model/operators/attention.py)."""

REST: Final = "elementwise"
"""What stands in for operators bound by memory that were not timed."""


def kinds(action: Compute, form: Format, trainer: Trainer) -> Iterator[str]:
    """The kinds of kernels that a computation is, the nearest first."""
    operator, part = action.operator, action.part
    precision = form.kernels if operator in PRODUCTS else form.activation  # others go with the bytes of activations
    variant, last = _variant(action), channels_last(trainer)
    for tag in dict.fromkeys((operator, ALIKE.get(operator, operator if operator in PRODUCTS else REST))):
        for word in dict.fromkeys((precision, ALIKE.get(precision, precision))):
            if last:
                yield f"{tag} {variant} last {part} {word}"
            yield f"{tag} {variant} {part} {word}"
            yield f"{tag} {part} {word}"


def _variant(action: Compute) -> str:
    """What else decides which kernel a library takes."""
    n = action.loops
    if action.operator == "convolution":
        if _always(n["group"] == 1):
            return "dense"
        return "depthwise" if _always(n["in"] == 1) else "grouped"
    if action.operator == "normalize":
        return "tokens" if _always(n.get("affine", n["member"]) == n["member"]) else "channels"
    if action.operator == "attention":
        return "stored" if _always(action.cost.fused >= STORED) else "fused"
    return "plain"


def _always(truth: Any) -> bool:
    return truth if isinstance(truth, bool) else bool(truth.all())


TOUCHED: Final = 8
"""Bytes of an element that is read and written in fp32: a copy, which computes nothing, is near a function of as many
elements, and not near one that is too small to compute anything."""


def sizes(cost: OperatorPart) -> tuple[Quantity, Quantity]:
    """The two sizes that surfaces of kernels are over: work, and bytes."""
    moved = cost.read + cost.written
    return at_least(cost.matrix + cost.vector, moved / TOUCHED), moved


def corrected(price: KernelPrice, action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """The price with what was measured of such kernels; the same where nothing like it was timed."""
    price = _started(price, action, device)
    for kind in kinds(action, form, trainer):
        if kind in device.measured:
            return _scaled(price, device.measured[kind], action.cost)
    return price


def _started(price: KernelPrice, action: Compute, device: Device) -> KernelPrice:
    """The price with the host's code as cold as the kernel's bytes leave it."""
    known = device.measured.get(LAUNCH[action.part != "forward"])
    if known is None:
        return price
    cold, bytes_each = known.factor(1, 1), sizes(action.cost)[1] / at_least(price.launches, 1)
    share = smaller(1.0, AGAIN * bytes_each / device.cache_bytes)
    return msgspec.structs.replace(price, launch=price.launch * (1 + (cold - 1) * share))


def timed(action: Compute, device: Device, form: Format, trainer: Trainer) -> bool:
    """Whether such kernels, or its own layer, were timed on the device; what else was says nothing of them."""
    known = any(kind in device.measured for kind in kinds(action, form, trainer))
    return known or _of_layer(action, device) is not None


def update_kind(rule: str, form: Format) -> str:
    """The kind of kernels that an optimizer's step is."""
    return f"update {rule} {'fused' if form.master else form.activation}"


def corrected_update(price: KernelPrice, action: Update, device: Device, form: Format) -> KernelPrice:
    """The same for the optimizer's step; another rule's measurement stands in for a rule that was not timed."""
    own = update_kind(action.rule, form)
    others = (kind for kind in device.measured if kind.startswith("update "))
    for kind in (own, update_kind(action.rule, msgspec.structs.replace(form, master=0, activation="fp32")), *others):
        if kind in device.measured:
            return _scaled(price, device.measured[kind], action.cost)
    return price


def profiled(price: KernelPrice, action: Compute, device: Device) -> KernelPrice:
    """The price with what the layer was measured to take that the kernel belongs to."""
    factor = _of_layer(action, device)
    return price if factor is None else times(price, factor)


def _of_layer(action: Compute, device: Device) -> float | None:
    """Measured over formula of the layer that a kernel belongs to."""
    way = "forward" if action.part == "forward" else "backward"
    path = action.path
    while path:
        factor = device.profiled.get(f"{path} {way}")
        if factor is not None:
            return factor
        path = path.rpartition(".")[0]
    return None


def profiled_update(price: KernelPrice, device: Device) -> KernelPrice:
    """The same for the optimizer's step."""
    factor = device.profiled.get("update")
    return price if factor is None else times(price, factor)


def _scaled(price: KernelPrice, measured: Surface, cost: OperatorPart) -> KernelPrice:
    return times(price, measured.factor(*sizes(cost)))


def times(price: KernelPrice, factor: Quantity) -> KernelPrice:
    """What the kernel does, so many times as long; starting it stays as it is."""
    return KernelPrice(
        price.matrix * factor,
        price.stream * factor,
        price.after * factor,
        price.launch,
        price.launches,
        ORIGINS[0],
    )
