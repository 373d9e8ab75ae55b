"""Matrix products: dense layers, batched products, and the grouped product of experts by a library."""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, in_layer, kernels_of, priced_product
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import VECTOR_BYTES, by_rows, layout_share
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import FORMATS, Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import WIDTH, Quantity

OPERATORS: Final = ("matmul",)

ADAPTERS: Final = (".lora_a", ".lora_b")
"""How the paths of thin products end (model/adapters.py)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Tiles in waves, or the traffic of the operands if that takes longer."""
    n = action.loops
    grouped = action.operator == "grouped_matmul"
    batch = n["expert"] if grouped else n["batch"]
    rows = n["row"] / batch if grouped else n["row"]  # experts have equal shares; an imbalance is a factor on top
    ins, outs = n["in"], n["out"]
    x, w, y = batch * rows * ins, batch * ins * outs, batch * rows * outs
    shape = {
        "forward": (rows, outs, ins, batch),
        "input_gradient": (rows, ins, outs, batch),
        "weight_gradient": (ins, outs, rows, batch),
    }[action.part]
    of_weight = grouped or _is_one(n["batch"])
    form = form if grouped else multiplied_in(action, form)
    full = of_weight and trainer.fusion.vocabulary == "full" and not in_layer(action.path)
    precision = _weights_in(action.path, device, form, full) if of_weight else form.other_kernels
    beside, copies = casts(action.part, x, w, y, form, precision) if of_weight and not full else (0, 0)
    launches = (
        action.cost.launches + copies
    )  # of compiled code too: the sum of a bias's gradient is a kernel of its own
    width = activation_width(form)
    if trainer.execution == "compiled" and of_weight:
        beside = beside + _padding(action.part, w, y, ins * width, outs * width) * width
        share: Quantity = 1.0
    else:
        share = by_rows(device, precision, ins * width, outs * width)
    share = share * layout_share(device, precision, action.part)
    return priced_product(action, shape, x + w + y, precision, launches, device, form, beside=beside, share=share)


def _weights_in(path: str, device: Device, form: Format, full: bool) -> str:
    """The precision of a dense layer: the plan's, or (`full`) that of plain PyTorch on this device."""
    if full:
        return "tf32" if "tf32" in device.peak and form.kernels != "fp32" else "fp32"
    return kernels_of(path, form)


def multiplied_in(action: Compute, form: Format) -> Format:
    """The plan's format; that of fp32 for adapters that are kept so though the plan's products run in 16 bits."""
    if not action.path.endswith(ADAPTERS) or activation_width(form) >= WIDTH["fp32"] or form.autocast:
        return form
    n = action.loops
    elements = n["batch"] * (n["row"] * n["in"] + n["in"] * n["out"] + n["row"] * n["out"])
    wide = action.cost.read + action.cost.written == elements * WIDTH["fp32"]  # each operand once, 4 bytes an element
    return FORMATS["fp32"] if (wide if isinstance(wide, bool) else bool(wide.all())) else form


def _is_one(batch: Quantity) -> bool:
    """Whether it is a dense layer rather than a product of two activations."""
    return batch == 1 if isinstance(batch, int) else bool((batch == 1).all())


def _padding(part: str, w: Quantity, y: Quantity, in_bytes: Quantity, out_bytes: Quantity) -> Quantity:
    """Elements read and written by a compiler that pads rows to whole vectors, where they are not.

    The weight before the forward pass, the gradient of the output before both parts of the backward one (PyTorch 2.13,
    torch/_inductor/fx_passes/pad_mm.py): GPT-2's head, 50,257 columns, then runs on the newest kernels.
    """
    copied = {"forward": 2 * w, "input_gradient": 2 * y, "weight_gradient": 0}[part]
    odd = (in_bytes % VECTOR_BYTES != 0) | (out_bytes % VECTOR_BYTES != 0)
    return copied * odd


def casts(part: str, x: Quantity, w: Quantity, y: Quantity, form: Format, precision: str) -> tuple[Quantity, int]:
    """Bytes and launches of the casts before or after a product with a weight.

    Autocast copies the fp32 weight to 16 bits on its way in, and the gradient back. In fewer bits both operands of the
    forward pass and the gradient of the output are quantised, with a second copy, transposed, for the weight's gradient
    (Micikevicius et al. 2022, arXiv 2209.05433).
    """
    if form.autocast:
        return (w * (form.weight + form.operand), 1) if part != "input_gradient" else (0, 0)
    if precision == form.other_kernels:
        return 0, 0
    made = {"forward": x + w, "input_gradient": y, "weight_gradient": 0}[part]
    kernels = {"forward": 2, "input_gradient": 1, "weight_gradient": 0}[part]
    return made * (activation_width(form) + 2 * form.operand), kernels
