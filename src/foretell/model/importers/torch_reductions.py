# pyright: basic
"""Traced operators that gather many elements into few: sums, norms, softmax, pooling, resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from foretell.model.importers.torch_call import TorchCall
from foretell.model.importers.torch_dims import GUESS, ROLE, SPACE, Group, Layout, fresh, joined, leaves, tie
from foretell.model.importers.torch_tape import Tape, tie_layouts
from foretell.model.operators.cumulative import Cumulative
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.experts import Histogram, Put, Sort, TopK
from foretell.model.operators.normalization import Normalize
from foretell.model.operators.pooling import Pool
from foretell.model.operators.reduction import Reduce
from foretell.model.operators.resampling import Upsample
from foretell.model.operators.softmax import Softmax
from foretell.model.operators.squared_error import SquaredError
from foretell.units import ceil_div

FUNCTIONS = {
    "sum": "sum",
    "nansum": "sum",
    "mean": "mean",
    "nanmean": "mean",
    "amax": "maximum",
    "amin": "maximum",
    "max": "maximum",
    "min": "maximum",
    "aminmax": "maximum",
    "argmax": "maximum",
    "argmin": "maximum",
    "median": "maximum",
    "any": "maximum",
    "all": "maximum",
    "prod": "norm",
    "norm": "norm",
    "linalg_vector_norm": "norm",
    "logsumexp": "norm",
    "var": "variance",
    "std": "variance",
    "var_mean": "variance",
    "std_mean": "variance",
    "count_nonzero": "sum",
}


def _places(dims: Any, count: int) -> list[int]:
    """The dims that are meant, counted from the front; all of them where none is given."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(count))
    return [dim % max(1, count) for dim in ([dims] if isinstance(dims, int) else dims)] if count else []


def _reduce(call: TorchCall) -> None:
    tape, x, output = call.tape, call.tensors[0], call.outputs[0]
    if len(call.tensors) > 1 and call["other"] is not None:  # max(x, y) is element by element
        from foretell.model.importers.torch_elementwise import pointwise

        pointwise(call)
        return
    known = tape.layout(x)
    gone = _places(call["dim"], len(known))
    kept = [group for at, group in enumerate(known) if at not in gone]
    layout: Layout = tuple(kept)
    if output.dim() == len(known):  # keepdim
        layout = tuple(() if at in gone else group for at, group in enumerate(known))
    loops = {"kept": joined(kept), "reduced": joined(known[at] for at in gone)}
    function = FUNCTIONS[call.name.rpartition(".")[2]]
    tape.add(Reduce(function), loops, {"x": x}, [(out, layout) for out in call.outputs])


def _softmax(call: TorchCall) -> None:
    x, output = call.tensors[0], call.outputs[0]
    layout = call.tape.layout(x)
    dim = call["dim"] % max(1, len(layout))
    rows = joined(group for at, group in enumerate(layout) if at != dim)
    loops = {"row": rows, "class": layout[dim] if layout else ()}
    call.tape.add(Softmax("log" in call.name), loops, {"x": x}, [(output, layout)])


def normalize(
    tape: Tape,
    kind: str,
    x: torch.Tensor,
    outputs: list[tuple[torch.Tensor, Layout]],
    group: Group,
    member: Group,
    affine: Group,
    weights: dict[str, torch.Tensor | None],
    by_rule: bool = False,
) -> None:
    """One norm of any kind; `weights` are its w and b, where it has them."""
    inputs = {"x": x} | {name: weight for name, weight in weights.items() if weight is not None}
    loops = {"group": group, "member": member, "affine": affine if len(inputs) > 1 else ()}
    tape.add(Normalize(kind), loops, inputs, outputs, by_rule=by_rule)


def over_last(tape: Tape, x: torch.Tensor, count: int, weights: dict[str, torch.Tensor | None]) -> Layout:
    """The dims of a norm over the last `count` dims, tied to its weights' and called hidden."""
    layout = tape.layout(x)
    for weight in weights.values():
        if weight is not None:
            for a, b in zip(layout[-count:], tape.layout(weight), strict=False):
                tie(a, b)
    atoms = leaves(layout[-1])
    if count == 1 and len(atoms) == 1:
        atoms[0].call("hidden", GUESS)
    return layout


def _layer_norm(call: TorchCall) -> None:
    x, count = call["input"], len(call["normalized_shape"])
    weights = {"w": call["weight"], "b": call["bias"]}
    layout = over_last(call.tape, x, count, weights)
    group, member = joined(layout[:-count]), joined(layout[-count:])
    outputs = [(call.outputs[0], layout)]
    outputs += [(out, (*layout[:-count], *[()] * count)) for out in call.outputs[1:]]
    normalize(call.tape, "rms" if "rms" in call.name else "layer", x, outputs, group, member, member, weights)


def _batch_norm(call: TorchCall) -> None:
    tape, x = call.tape, call["input"]
    layout = tape.layout(x)
    weights = {"w": call["weight"], "b": call["bias"]}
    channel = layout[1]
    for tensor in (*weights.values(), call["running_mean"], call["running_var"]):
        if tensor is not None:
            tie(tape.layout(tensor)[0], channel)
    member = joined(group for at, group in enumerate(layout) if at != 1)
    outputs = [(call.outputs[0], layout)] + [(out, (channel,)) for out in call.outputs[1:] if out.dim() == 1]
    instance = len(leaves(channel)) > 1 and x.shape[0] == 1  # PyTorch runs instance norm as this
    normalize(tape, "instance" if instance else "batch", x, outputs, channel, member, channel, weights)


def _group_norm(call: TorchCall) -> None:
    tape, x, groups = call.tape, call["input"], call["group"]
    layout = tape.layout(x)
    weights = {"w": call["weight"], "b": call["bias"]}
    sample, channel, *space = layout
    for weight in weights.values():
        if weight is not None:
            tie(tape.layout(weight)[0], channel)
    group = (*sample, *fresh(groups, "group"))
    member = (*fresh(x.shape[1] // groups, "channel"), *joined(space))
    small = (sample, fresh(groups, "group"))
    outputs = [(call.outputs[0], layout), *((out, small) for out in call.outputs[1:])]
    normalize(tape, "group", x, outputs, group, member, channel, weights)


def _pool(call: TorchCall) -> None:
    tape, x, output = call.tape, call["self"], call.outputs[0]
    adaptive = "adaptive" in call.name
    count = 3 if "3d" in call.name else 1 if "1d" in call.name else 2
    before, after = x.shape[-count:], output.shape[-count:]
    if adaptive:
        kernel = tuple(max(1, ceil_div(a, max(1, b))) for a, b in zip(before, after, strict=True))
        stride = kernel
    else:
        kernel = _each(call["kernel_size"], count)
        stride = _each(call["stride"], count) if call["stride"] else kernel
    layout, loops = _resized(tape.layout(x), before, after)
    function = "max" if "max" in call.name else "average"
    tape.add(Pool(function, kernel, stride, adaptive), loops, {"x": x}, [(out, layout) for out in call.outputs])


def _each(value: Any, count: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * count if len(values) == 1 else values


def _resized(known: Layout, before: Any, after: Any) -> tuple[Layout, dict[str, Group]]:
    """Dims and loops of an operator that changes the spatial sizes."""
    count = len(after)
    names = SPACE[-count:]
    space = tuple(
        group if size == old else fresh(size, name if count > 1 else "", ROLE, like=group)
        for group, old, size, name in zip(known[-count:], before, after, names, strict=True)
    )
    outer = known[:-count]
    loops = {
        "sample": joined(outer[:-1]),
        "channel": outer[-1] if outer else (),
        **dict(zip(names, space, strict=True)),
    }
    return (*outer, *space), loops


def _upsample(call: TorchCall) -> None:
    tape, x, output = call.tape, call.tensors[0], call.outputs[0]
    count = x.dim() - 2
    before, after = x.shape[2:], output.shape[2:]
    layout, loops = _resized(tape.layout(x), before, after)
    factor = tuple(max(1, round(b / max(1, a))) for a, b in zip(before, after, strict=True))
    function = "nearest" if "nearest" in call.name else "linear"
    tape.add(Upsample(factor[:count], function), loops, {"x": x}, [(output, layout)])


def _top_k(call: TorchCall) -> None:
    tape, x, output = call.tape, call["self"], call.outputs[0]
    layout = tape.layout(x)
    dim = call["dim"] % max(1, len(layout))
    chosen = fresh(output.shape[dim], "chosen", ROLE)
    rows = joined(group for at, group in enumerate(layout) if at != dim)
    found = (*layout[:dim], chosen, *layout[dim + 1 :])
    loops = {"row": rows, "class": layout[dim], "chosen": chosen}
    tape.add(TopK(), loops, {"x": x}, [(out, found) for out in call.outputs])


def _sort(call: TorchCall) -> None:
    """The order of a list of whole numbers, such as the experts of all rows; others stay unknown."""
    x = call["self"]
    if x.dim() != 1 or x.is_floating_point():
        raise ValueError("no list of whole numbers")
    layout = call.tape.layout(x)
    call.tape.add(Sort(), {"row": joined(layout)}, {"x": x}, [(out, layout) for out in call.outputs])


def _histogram(call: TorchCall) -> None:
    x, output = call["self"], call.outputs[0]
    classes = fresh(output.numel(), "expert")
    call.tape.add(Histogram(), {"row": joined(call.tape.layout(x)), "class": classes}, {"x": x}, [(output, (classes,))])


def _cumulative(call: TorchCall) -> None:
    x, output = call["self"], call.outputs[0]
    layout = call.tape.layout(x)
    dim = call["dim"] % max(1, len(layout))
    rows = joined(group for at, group in enumerate(layout) if at != dim)
    call.tape.add(Cumulative(), {"row": rows, "place": layout[dim]}, {"x": x}, [(output, layout)])


def _scatter(call: TorchCall) -> None:
    """Entries of each row put at their places in it."""
    tape, x, index, output = call.tape, call["self"], call["index"], call.outputs[0]
    layout, picked = tape.layout(x), tape.layout(index)
    dim = call["dim"] % max(1, len(layout))
    kept = [group for at, group in enumerate(layout) if at != dim]
    if any(x.shape[at] != size for at, size in enumerate(index.shape) if at != dim) or call["reduce"]:
        raise ValueError("rows of other lengths, or entries that are joined")
    tie_layouts(tuple(kept), tuple(group for at, group in enumerate(picked) if at != dim))
    source = call["src"]
    inputs = {"index": index} if source is None else {"x": source, "index": index}
    if source is not None:
        tie_layouts(picked, tape.layout(source))
    loops = {"kept": joined(kept), "row": picked[dim], "target": layout[dim]}
    tape.add(Put(), loops, inputs, [(output, layout)])


def _index_put(call: TorchCall) -> None:
    """A list turned into the order that another says, as experts' rows are put back; others stay unknown."""
    tape, x, value, output = call.tape, call["self"], call["values"], call.outputs[0]
    (index,) = call["indices"]
    if not x.shape == index.shape == value.shape or x.dim() != 1 or call["accumulate"]:
        raise ValueError("no list in another order")
    layout = tape.layout(index)
    tie_layouts(tape.layout(x), layout)
    tie_layouts(tape.layout(value), layout)
    inputs = {"x": value, "index": index}
    tape.add(Put(), {"kept": (), "row": joined(layout), "target": joined(layout)}, inputs, [(output, layout)])


def _squared_error(call: TorchCall) -> None:
    tape, x, target, output = call.tape, call["self"], call["target"], call.outputs[0]
    layout = tape.layout(x)
    tie_layouts(layout, tape.layout(target))
    inputs = {"x": x, "t": target}
    if output.dim():  # one value for every element
        tape.add(Elementwise("square"), {"item": joined(layout)}, {"x": x, "z": target}, [(output, layout)])
    else:
        tape.add(SquaredError(), {"item": joined(layout)}, inputs, [(output, ())])


UPSAMPLED = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
POOLED = (
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
)

TABLE: dict[str, Callable[[TorchCall], None]] = {
    **{f"aten.{name}": _reduce for name in FUNCTIONS},
    **{f"aten.{name}": _pool for name in POOLED},
    **{f"aten.{name}": _upsample for name in UPSAMPLED},
    "aten._softmax": _softmax,
    "aten._log_softmax": _softmax,
    "aten._safe_softmax": _softmax,
    "aten.native_layer_norm": _layer_norm,
    "aten._fused_rms_norm": _layer_norm,
    "aten.native_batch_norm": _batch_norm,
    "aten._native_batch_norm_legit": _batch_norm,
    "aten._batch_norm_with_update": _batch_norm,
    "aten.cudnn_batch_norm": _batch_norm,
    "aten.native_group_norm": _group_norm,
    "aten.topk": _top_k,
    "aten.sort": _sort,
    "aten.histc": _histogram,
    "aten.bincount": _histogram,
    "aten.cumsum": _cumulative,
    "aten.scatter": _scatter,
    "aten.index_put": _index_put,
    "aten.mse_loss": _squared_error,
}
