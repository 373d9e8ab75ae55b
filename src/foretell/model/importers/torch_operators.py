# pyright: basic
"""From PyTorch's operators to ours: a table, and one small function for each family.

A function of the table gets one call and writes it on the tape as our operator, with the dims of its
outputs named by the dims of its inputs. What is not in the table is kept as `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from foretell.model.importers import (
    torch_elementwise,
    torch_layout,
    torch_products,
    torch_reductions,
)
from foretell.model.importers.torch_call import TorchCall
from foretell.model.importers.torch_dims import Atom, Layout, fresh, joined, size_of
from foretell.model.importers.torch_tape import Tape, storage_of
from foretell.model.operators.unknown import Unknown
from foretell.units import ceil_div

TABLE: dict[str, Callable[[TorchCall], None]] = {
    **torch_elementwise.TABLE,
    **torch_layout.TABLE,
    **torch_products.TABLE,
    **torch_reductions.TABLE,
}

MEMORY_BOUND = {
    "aten.cumsum",
    "aten.cumprod",
    "aten.cummax",
    "aten.cummin",
    "aten.logcumsumexp",
    "aten.sort",
    "aten.argsort",
    "aten.scatter",
    "aten.scatter_add",
    "aten.scatter_reduce",
    "aten.index_put",
    "aten._index_put_impl",
    "aten.index_add",
    "aten.index_copy",
    "aten.index_fill",
    "aten.masked_scatter",
    "aten.bincount",
    "aten.histc",
    "aten.searchsorted",
    "aten.bucketize",
    "aten.repeat_interleave",
    "aten.multinomial",
    "aten.randperm",
    "aten.binary_cross_entropy",
    "aten.binary_cross_entropy_with_logits",
    "aten.huber_loss",
    "aten.smooth_l1_loss",
    "aten.multi_margin_loss",
    "aten.multilabel_margin_loss_forward",
    "aten.nll_loss_forward",
    "aten.nll_loss2d_forward",
    "aten._embedding_bag",
    "aten.im2col",
    "aten.col2im",
    "aten.grid_sampler_2d",
    "aten.grid_sampler_3d",
    "aten._ctc_loss",
    "aten._pdist_forward",
    "aten.diag_embed",
    "aten.diag",
    "aten.pixel_shuffle",
    "aten.pixel_unshuffle",
    "aten.channel_shuffle",
    "aten.isin",
    "aten._weight_norm_interface",
}
"""Operators without an operator of ours that are bound by memory, so that no warning is due."""


def record(tape: Tape, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Write one dispatched call on the tape."""
    call = TorchCall(tape, func, args, kwargs, result)
    if not call.outputs:
        return
    written = call.written()
    handler = TABLE.get(call.name)
    if written and call.name in torch_layout.VIEWS and call.name not in torch_layout.PERMUTED:
        handler = torch_layout.in_place_view
    if handler is not None:
        _described(call, handler)
    elif not written and all(_shared(out, call.tensors) for out in call.outputs):
        torch_layout.unknown_view(call)
    elif torch.Tag.pointwise in func.tags:
        torch_elementwise.pointwise(call)
    else:
        unknown(call)


def _described(call: TorchCall, handler: Callable[[TorchCall], None]) -> None:
    """Use the table's function; a form of the operator that it does not know is kept as unknown."""
    before = len(call.tape.nodes)
    try:
        handler(call)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ZeroDivisionError):
        del call.tape.nodes[before:]
        unknown(call)


def _shared(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    memory = storage_of(tensor)
    return any(storage_of(other) == memory for other in others)


def unknown(call: TorchCall) -> None:
    """Keep an operator that nobody described: it reads its inputs and writes its outputs."""
    tape = call.tape
    output = call.outputs[0]
    tensors = [tensor for tensor in call.tensors if tensor is not output] or call.tensors
    largest = max(tensors, key=torch.Tensor.numel, default=None)
    layouts = [(out, guessed(call, out)) for out in call.outputs]
    inputs: dict[str, torch.Tensor] = {}
    read: tuple[Atom, ...] = ()
    if largest is not None:
        others = [tensor for tensor in tensors if tensor is not largest]
        inputs = {"x": largest} | {f"x{at}": tensor for at, tensor in enumerate(others, 1)}
        total = sum(tensor.numel() for tensor in tensors)
        read = joined(tape.layout(largest)) + fresh(ceil_div(total, max(1, largest.numel())), "operand")
    flops = _flops(call)
    if call.name not in MEMORY_BOUND and not flops:
        tape.unknown.setdefault(call.name, []).append(tape.path)
    items = max(1, call.outputs[0].numel()) if call.outputs else 1
    operator = Unknown(call.name.removeprefix("aten."), matrix_flops=flops, items=items)
    tape.add(operator, {"read": read, "item": joined(layouts[0][1])}, inputs, layouts)


def _flops(call: TorchCall) -> int:
    """What PyTorch's counter makes of an operator that we do not know."""
    formula = flop_registry.get(call.packet)
    if formula is None:
        return 0
    return int(formula(*call.args, **call.kwargs, out_val=call.result))


def guessed(call: TorchCall, output: torch.Tensor) -> Layout:
    """Dims of an output of which nothing is known: those of an input where sizes agree."""
    tape = call.tape
    for tensor in call.tensors:
        if tensor.shape == output.shape:
            return tape.layout(tensor)
    largest = max(call.tensors, key=torch.Tensor.numel, default=None)
    known = tape.layout(largest) if largest is not None else ()
    found: list[tuple[Atom, ...]] = []
    for at, size in enumerate(output.shape):
        same = at < len(known) and size_of(known[at]) == size
        found.append(known[at] if same else fresh(size))
    return tuple(found)
