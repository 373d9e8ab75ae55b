# pyright: basic
"""Traced operators that work one element at a time, and those that only make elements."""

from __future__ import annotations

from collections.abc import Callable

import torch

from foretell.model.importers.torch_call import TorchCall
from foretell.model.importers.torch_dims import Group, Layout, fresh, joined, leaves, size_of, tie
from foretell.model.operators.broadcast import FUNCTIONS as REPEATING
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.elementwise import FUNCTIONS, Elementwise

SAME_NAME = {name: name for name in FUNCTIONS}
WORDS = SAME_NAME | {
    "threshold": "relu",
    "hardtanh": "relu6",
    "_prelu_kernel": "prelu",
    "rrelu_with_noise": "leaky_relu",
    "selu": "elu",
    "celu": "elu",
    "expm1": "exp",
    "exp2": "exp",
    "log1p": "log",
    "log2": "log",
    "log10": "log",
    "log_sigmoid_forward": "softplus",
    "erf": "gelu",
    "neg": "negate",
    "reciprocal": "rsqrt",
    "div": "divide",
    "true_divide": "divide",
    "floor_divide": "divide",
    "remainder": "divide",
    "fmod": "divide",
    "mul": "multiply",
    "sub": "subtract",
    "rsub": "subtract",
    "clamp_min": "clamp",
    "clamp_max": "clamp",
    "minimum": "maximum",
    "masked_fill": "where",
    "addcmul": "multiply",
    "addcdiv": "divide",
    "lerp": "add",
    "float_power": "pow",
    "complex": "copy",
    "polar": "cos",
    "conj_physical": "copy",
    "_conj": "copy",
    "_to_copy": "cast",
    "clone": "copy",
    "contiguous": "copy",
    "copy": "copy",
    "fill": "fill",
    "zero": "fill",
}
"""PyTorch's names to ours; any other function of one element counts as `other`."""

NUMBERS = {"multiply": "scale", "divide": "scale"}
"""What a product with a plain number is."""

EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
FILLED = (
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "new_full",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "lift_fresh_copy",
    "_efficientzerotensor",
)
DRAWN = ("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "bernoulli", "normal", "uniform")
DRAWN_IN_PLACE = ("exponential", "random", "cauchy", "log_normal", "geometric", "normal_functional")


def pointwise(call: TorchCall) -> None:
    """A function of one, two or three tensors, element by element; smaller ones repeat."""
    output = call.outputs[0]
    layout = broadcast_layout(call, call.tensors, output)
    function = _function(call)
    operands = [tensor for tensor in call.tensors if tensor is not call["out"]]
    if function == "where" and len(operands) == 3:
        operands = [operands[1], operands[2], operands[0]]
    if function == "copy" and len(operands) == 2:  # copy_: what is overwritten is not read
        operands = operands[1:]
    if not operands or function == "fill":
        inputs: dict[str, torch.Tensor] = {}
    else:
        # the first of full size leads: the formulas count it once per element
        lead = next((t for t in operands if t.shape == output.shape), operands[0])
        rest = [t for t in operands if t is not lead]
        inputs = {"x": lead} | dict(zip(("z", "more", "most"), rest, strict=False))
    more = [(out, layout if out.shape == output.shape else tuple(map(fresh, out.shape))) for out in call.outputs[1:]]
    if _repeats(function, inputs, output):
        _broadcast(call, function, inputs, layout)
        return
    function = "leaky_relu" if function == "prelu" else function  # one slope for all channels
    call.tape.add(Elementwise(function), {"item": joined(layout)}, inputs, [(output, layout), *more])


def _function(call: TorchCall) -> str:
    word = call.name.rpartition(".")[2]
    function = WORDS.get(word, "other")
    if function == "gelu" and call["approximate"] == "tanh":
        return "gelu_tanh"
    if function == "pow" and isinstance(call["exponent"], int | float) and call["exponent"] == 2:
        return "square"
    if word == "_to_copy":
        return "cast" if call.outputs[0].dtype != call.tensors[0].dtype else "copy"
    if len(call.tensors) == 1:
        return NUMBERS.get(function, function)
    return function


def _repeats(function: str, inputs: dict[str, torch.Tensor], output: torch.Tensor) -> bool:
    """A sum or product of a whole tensor with one that is smaller and repeats."""
    if function not in REPEATING or set(inputs) != {"x", "z"} or inputs["x"].shape != output.shape:
        return False
    return 1 < inputs["z"].numel() < output.numel()


def _broadcast(call: TorchCall, function: str, inputs: dict[str, torch.Tensor], layout: Layout) -> None:
    x, z = inputs["x"], inputs["z"]
    missing = x.dim() - z.dim()
    shared = [at >= missing and z.shape[at - missing] == size for at, size in enumerate(x.shape)]
    item = joined(group for group, same in zip(layout, shared, strict=True) if same)
    repeat = joined(group for group, same in zip(layout, shared, strict=True) if not same)
    name = "w" if call.tape.of(z).is_weight else "z"
    call.tape.add(Broadcast(function), {"item": item, "repeat": repeat}, {"x": x, name: z}, [(call.outputs[0], layout)])


def broadcast_layout(call: TorchCall, tensors: list[torch.Tensor], output: torch.Tensor) -> Layout:
    """Dims of tensors that are matched from the last dim on; equal sizes are the same dim."""
    found: list[Group] = []
    layouts = [call.tape.layout(tensor) for tensor in tensors]
    for back in range(output.dim(), 0, -1):
        size = output.shape[-back]
        groups = [layout[-back] for layout in layouts if len(layout) >= back and size_of(layout[-back]) == size]
        if not groups:
            found.append(fresh(size))
            continue
        best = max(groups, key=lambda group: len(leaves(group)))
        for group in groups:
            tie(best, group)
        found.append(best)
    return tuple(found)


def _made(call: TorchCall) -> None:
    """New elements from nothing (or from another tensor's shape): written, not read."""
    output = call.outputs[0]
    word = call.name.rpartition(".")[2]
    like = next((tensor for tensor in call.tensors if tensor.shape == output.shape), None)
    layout = call.tape.layout(like) if like is not None else tuple(fresh(size) for size in output.shape)
    if word in EMPTY:
        call.tape.made(output, layout)  # memory without content: no work
        return
    function = "random" if word in (*DRAWN, *DRAWN_IN_PLACE) else "fill"
    call.tape.add(Elementwise(function), {"item": joined(layout)}, {}, [(output, layout)])


def _gated(call: TorchCall) -> None:
    """glu: the second half of a dim gates the first."""
    source, output = call.tensors[0], call.outputs[0]
    known = call.tape.layout(source)
    dim = call["dim"] % len(known)
    layout = tuple(fresh(output.shape[at], like=group) if at == dim else group for at, group in enumerate(known))
    call.tape.add(Elementwise("silu"), {"item": joined(layout)}, {"x": source}, [(output, layout)])


TABLE: dict[str, Callable[[TorchCall], None]] = {
    **{f"aten.{name}": pointwise for name in WORDS},
    **{f"aten.{name}": _made for name in (*EMPTY, *FILLED, *DRAWN, *DRAWN_IN_PLACE)},
    "aten.glu": _gated,
}
