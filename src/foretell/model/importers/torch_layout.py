# pyright: basic
"""Traced operators that move without computing: views, joins, borders, gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretell.model.importers.torch_call import TorchCall
from foretell.model.importers.torch_dims import Group, Layout, fresh, joined, regroup, size_of, tie
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.experts import Gather
from foretell.model.operators.layout import Concatenate, Pad, View


def _view(call: TorchCall, layouts: list[Layout], function: str) -> None:
    """Every output reads the memory of the first tensor."""
    source = call.tensors[0]
    for output, layout in zip(call.outputs, layouts, strict=True):
        call.tape.add(View(function), {"item": joined(layout)}, {"x": source}, [(output, layout)])


def _source(call: TorchCall) -> Layout:
    return call.tape.layout(call.tensors[0])


def _reshape(call: TorchCall) -> None:
    output = call.outputs[0]
    source = _source(call)
    same = output.numel() == call.tensors[0].numel()
    layout = regroup(source, output.shape) if same else tuple(fresh(size) for size in output.shape)
    _view(call, [layout], "reshape")


def _same(call: TorchCall) -> None:
    _view(call, [_source(call)], "alias")


def unknown_view(call: TorchCall) -> None:
    """A view that nobody described: named by what it looks at, where the sizes agree."""
    layouts: list[Layout] = []
    for output in call.outputs:
        if output.numel() == call.tensors[0].numel():
            layouts.append(regroup(_source(call), output.shape))
        else:
            layouts.append(tuple(fresh(size) for size in output.shape))
    _view(call, layouts, "slice")


def in_place_view(call: TorchCall) -> None:
    """A tensor that is read with other dims from here on (squeeze_, as_strided_)."""
    source, output = _source(call), call.outputs[0]
    same = size_of(joined(source)) == output.numel()
    layout = regroup(source, output.shape) if same else tuple(fresh(size) for size in output.shape)
    _view(call, [layout], "reshape")


def _permute(call: TorchCall) -> None:
    source = list(_source(call))
    if call.name == "aten.permute":
        order = [dim % max(1, len(source)) for dim in call["dims"]]
        layout = [source[dim] for dim in order]
    elif len(source) < 2:
        layout = source
    else:
        first, second = (0, 1) if call.name == "aten.t" else (call["dim0"], call["dim1"])
        layout = source
        layout[first], layout[second] = layout[second], layout[first]
    _view(call, [tuple(layout)], "transpose")


def _unsqueeze(call: TorchCall) -> None:
    source = list(_source(call))
    source.insert(call["dim"] % (len(source) + 1), ())
    _view(call, [tuple(source)], "reshape")


def _squeeze(call: TorchCall) -> None:
    source, shape = _source(call), call.tensors[0].shape
    asked = call["dim"]
    if asked is None:
        gone = set(range(len(shape)))
    else:
        gone = {dim % max(1, len(shape)) for dim in ([asked] if isinstance(asked, int) else asked)}
    _view(call, [_without(source, {dim for dim in gone if dim < len(shape) and shape[dim] == 1})], "reshape")


def _without(source: Layout, gone: set[int]) -> Layout:
    """Dims of one element left out; what they mean (a batch of one) stays with the next dim."""
    found: list[Group] = []
    waiting: Group = ()
    for at, group in enumerate(source):
        if at in gone:
            waiting += group
        else:
            found.append(waiting + group)
            waiting = ()
    if waiting and found:
        found[-1] += waiting
    return tuple(found)


def _expand(call: TorchCall) -> None:
    _view(call, [_stretched(_source(call), call.tensors[0].shape, call.outputs[0].shape)], "expand")


def _stretched(source: Layout, before: Any, after: Any) -> Layout:
    missing = len(after) - len(before)
    found: list[Group] = []
    for at, size in enumerate(after):
        kept = at >= missing and before[at - missing] == size
        found.append(source[at - missing] if kept else fresh(size))
    return tuple(found)


def _slice(call: TorchCall) -> None:
    """Pieces along one dim; a piece is named as the whole is."""
    source = _source(call)
    dim = call["dim"] % max(1, len(source))
    layouts = [_piece(source, dim, output.shape[dim]) for output in call.outputs]
    _view(call, layouts, "slice")


def _piece(source: Layout, dim: int, size: int) -> Layout:
    whole = source[dim]
    piece = whole if size_of(whole) == size else fresh(size, like=whole)
    return (*source[:dim], piece, *source[dim + 1 :])


def _select(call: TorchCall) -> None:
    source = _source(call)
    dim = call["dim"] % max(1, len(source))
    _view(call, [(*source[:dim], *source[dim + 1 :])] * len(call.outputs), "slice")


def _diagonal(call: TorchCall) -> None:
    source = _source(call)
    gone = {call["dim1"] % len(source), call["dim2"] % len(source)}
    rest = tuple(group for at, group in enumerate(source) if at not in gone)
    _view(call, [(*rest, fresh(call.outputs[0].shape[-1]))], "slice")


def _windows(call: TorchCall) -> None:
    source = _source(call)
    dim = call["dimension"] % len(source)
    count, size = call.outputs[0].shape[dim], call.outputs[0].shape[-1]
    windows = fresh(count, like=source[dim])
    _view(call, [(*source[:dim], windows, *source[dim + 1 :], fresh(size, "window"))], "slice")


def _complex(call: TorchCall) -> None:
    source = _source(call)
    more = len(call.outputs[0].shape) > len(source)
    _view(call, [(*source, fresh(2, "pair")) if more else source[:-1]], "reshape")


PERMUTED = ("aten.t", "aten.transpose", "aten.permute")

VIEWS: dict[str, Callable[[TorchCall], None]] = {
    "aten.view": _reshape,
    "aten._unsafe_view": _reshape,
    "aten.reshape": _reshape,
    "aten._reshape_alias": _reshape,
    "aten.unflatten": _reshape,
    "aten.alias": _same,
    "aten.detach": _same,
    "aten.lift_fresh": _same,
    "aten.lift": _same,
    "aten.view_as": _same,
    "aten.t": _permute,
    "aten.transpose": _permute,
    "aten.permute": _permute,
    "aten.unsqueeze": _unsqueeze,
    "aten.squeeze": _squeeze,
    "aten.expand": _expand,
    "aten.slice": _slice,
    "aten.narrow": _slice,
    "aten.split": _slice,
    "aten.split_with_sizes": _slice,
    "aten.chunk": _slice,
    "aten.select": _select,
    "aten.unbind": _select,
    "aten.diagonal": _diagonal,
    "aten.unfold": _windows,
    "aten.as_strided": unknown_view,
    "aten.view_as_real": _complex,
    "aten.view_as_complex": _complex,
}


def _concatenate(call: TorchCall) -> None:
    tape, output = call.tape, call.outputs[0]
    parts = [tensor for tensor in call["tensors"] if tensor.dim() == output.dim()]  # cat skips empty ones
    dim = call["dim"] % max(1, output.dim())
    layouts = [tape.layout(part) for part in parts]
    for layout in layouts[1:]:
        for at, group in enumerate(layout):
            if at != dim:
                tie(layouts[0][at], group)
    longest = max(layouts, key=lambda layout: size_of(layout[dim]))
    found = [_richest([layout[at] for layout in layouts]) for at in range(output.dim())]
    place = longest[dim]
    along = "sequence" if len(place) > 1 else ""  # positions and something: a class token before patches
    found[dim] = fresh(output.shape[dim], along, like=place)
    inputs = {"x" if at == 0 else f"x{at}": part for at, part in enumerate(parts)}
    tape.add(Concatenate(), {"item": joined(found)}, inputs, [(output, tuple(found))])


def _richest(groups: list[Group]) -> Group:
    """Of equal dims the one that says most."""
    return max(groups, key=len)


def _stack(call: TorchCall) -> None:
    tape, output = call.tape, call.outputs[0]
    layouts = [tape.layout(part) for part in call["tensors"]]
    for layout in layouts[1:]:
        for a, b in zip(layouts[0], layout, strict=True):
            tie(a, b)
    found = list(layouts[0])
    dim = call["dim"] % output.dim()
    found.insert(dim, fresh(output.shape[dim]))
    inputs = {"x" if at == 0 else f"x{at}": part for at, part in enumerate(call["tensors"])}
    tape.add(Concatenate(), {"item": joined(found)}, inputs, [(output, tuple(found))])


def _pad(call: TorchCall) -> None:
    tape, source, output = call.tape, call.tensors[0], call.outputs[0]
    layout = tuple(
        group if size == before else fresh(size, like=group)
        for group, before, size in zip(tape.layout(source), source.shape, output.shape, strict=True)
    )
    tape.add(Pad(), {"item": joined(layout)}, {"x": source}, [(output, layout)])


def _moved(call: TorchCall) -> None:
    """The same dims in another order of elements: roll, flip, a triangle."""
    source, output = call.tensors[0], call.outputs[0]
    layout = call.tape.layout(source)
    call.tape.add(Elementwise("copy"), {"item": joined(layout)}, {"x": source}, [(output, layout)])


def _repeat(call: TorchCall) -> None:
    source, output = call.tensors[0], call.outputs[0]
    known = call.tape.layout(source)
    missing = output.dim() - len(known)
    layout = tuple(
        fresh(times) + (known[at - missing] if at >= missing else ()) for at, times in enumerate(call["repeats"])
    )
    call.tape.add(Elementwise("copy"), {"item": joined(layout)}, {"x": source}, [(output, layout)])


def _gather_rows(call: TorchCall) -> None:
    """Slices of x along one dim, picked by a list of places."""
    tape, x, index, output = call.tape, call["self"], call["index"], call.outputs[0]
    layout = tape.layout(x)
    dim = call["dim"] % max(1, len(layout))
    rows = tape.layout(index)[0] if index.dim() else ()
    rest = (*layout[:dim], *layout[dim + 1 :])
    loops = {"source": layout[dim], "row": rows, "feature": joined(rest)}
    tape.add(Gather(), loops, {"x": x, "index": index}, [(output, (*layout[:dim], rows, *layout[dim + 1 :]))])


def _gather_entries(call: TorchCall) -> None:
    """One entry of x along a dim for every entry of the index."""
    tape, x, index, output = call.tape, call["self"], call["index"], call.outputs[0]
    layout = tape.layout(index)
    loops = {"source": joined(tape.layout(x)), "row": joined(layout), "feature": ()}
    tape.add(Gather(), loops, {"x": x, "index": index}, [(output, layout)])


def _index(call: TorchCall) -> None:
    """x[i, :, j]: dims that have an index are replaced by the dims of the indices."""
    tape, x, output = call.tape, call["self"], call.outputs[0]
    indices = list(call["indices"])
    layout = tape.layout(x)
    indexed = [at for at, index in enumerate(indices) if index is not None]
    first = next(index for index in indices if index is not None)
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    rest = [group for at, group in enumerate(layout) if at >= len(indices) or indices[at] is None]
    before = indexed[0] if together else 0
    count = output.dim() - len(rest)
    widest = max((index for index in indices if index is not None), key=lambda index: index.dim())
    rows = tape.layout(widest) if widest.dim() == count else tuple(fresh(s) for s in output.shape[before:][:count])
    rows = tuple(
        group if size_of(group) == size else fresh(size)
        for group, size in zip(rows, output.shape[before : before + count], strict=True)
    )
    found = (*rest[:before], *rows, *rest[before:])
    source = joined(group for at, group in enumerate(layout) if at in indexed)
    loops = {"source": source, "row": joined(rows), "feature": joined(rest)}
    more = {f"index{at}": index for at, index in enumerate(indices) if index is not None and index is not first}
    tape.add(Gather(), loops, {"x": x, "index": first, **more}, [(output, found)])


TABLE: dict[str, Callable[[TorchCall], None]] = {
    **VIEWS,
    "aten.cat": _concatenate,
    "aten.stack": _stack,
    "aten.constant_pad_nd": _pad,
    "aten.reflection_pad1d": _pad,
    "aten.reflection_pad2d": _pad,
    "aten.reflection_pad3d": _pad,
    "aten.replication_pad1d": _pad,
    "aten.replication_pad2d": _pad,
    "aten.replication_pad3d": _pad,
    "aten.roll": _moved,
    "aten.flip": _moved,
    "aten.tril": _moved,
    "aten.triu": _moved,
    "aten.repeat": _repeat,
    "aten.index_select": _gather_rows,
    "aten.gather": _gather_entries,
    "aten.index": _index,
    "aten._unsafe_index": _index,
}
