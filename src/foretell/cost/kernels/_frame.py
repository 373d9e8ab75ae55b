"""What all families share: launches by execution, seconds of bytes, the type of a product."""

from __future__ import annotations

from typing import Any

from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture
from foretell.model.operator import OperatorPart
from foretell.plan.figures import look_up
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.casts import PLAIN_PASSES
from foretell.units import WIDTH, Quantity, at_least


def launches_of(cost: OperatorPart, execution: str) -> Quantity:
    """Kernels that the host starts: all of them, or those that are left when neighbours are compiled together."""
    return cost.launches if execution == "eager" else at_least(cost.fused, 1)


def activation_width(form: Format) -> int:
    """Bytes of an element of the activations."""
    return WIDTH[form.activation]


def in_layer(path: str) -> bool:
    """Whether a module lies in a stack of layers: one of the parts of its name is a number.

    Low precision is for the products of layers; the vocabulary's and what is outside of stacks stay in 16 bits.
    """
    return any(word.isdigit() for word in path.split("."))


def kernels_of(path: str, form: Format) -> str:
    """The precision of the product of an activation and a weight."""
    return form.kernels if form.kernels == form.other_kernels or in_layer(path) else form.other_kernels


def priced_product(
    action: Compute,
    shape: tuple[Quantity, Quantity, Quantity, Quantity],
    elements: Quantity,
    precision: str,
    launches: Quantity,
    device: Device,
    form: Format,
    *,
    beside: Quantity = 0,
    share: Quantity = 1.0,
) -> KernelPrice:
    """A product of (m, n, k, batch) whose operands have so many elements; its other bytes come after it.

    `beside` is bytes that the part's cost does not know of; `share` is how much of a plain product's rate it reaches.
    """
    by = units(device, precision)
    cost = action.cost
    total = cost.read + cost.written
    width = activation_width(form)
    moved = elements * min(width, form.operand if precision == form.kernels else width)
    matrix = product_seconds(*shape, by) / share
    after = at_least(total - elements * width, 0) + beside
    seconds = device.launch_seconds * launches
    return KernelPrice(matrix, moved / by.stream, after / memory_rate(device), seconds, launches, by.provenance)


def plain(trainer: Trainer, device: Device) -> bool:
    """Whether a trainer runs the graph's operators one by one, none fused by hand or by a compiler."""
    return trainer.execution == "eager" and hidden_passes(trainer, device) == PLAIN_PASSES


def hidden_passes(trainer: Trainer, device: Device) -> float:
    """Times that a layer of the trainer reads or writes its hidden tensor forward."""
    return look_up(trainer.fusion.hidden_passes, *architecture(device.architecture).words)


def channels_last(trainer: Trainer) -> bool:
    """Whether images have their channels innermost."""
    return bool(getattr(trainer.fusion, "channels_last", False))


def smaller(a: Quantity, b: Quantity) -> Quantity:
    return -at_least(-a, -b)


def where(condition: Any, yes: Quantity, no: Quantity) -> Quantity:
    """One of two finite numbers; a truth counts as one, so that it holds for arrays too."""
    return yes * condition + no * (1 - condition)
