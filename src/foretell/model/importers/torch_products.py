# pyright: basic
"""Traced operators that multiply: matrix products, convolutions, embeddings, experts, attention kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from foretell.model.attention import ATTENTIONS, attention_kernel
from foretell.model.importers.torch_call import TorchCall
from foretell.model.importers.torch_dims import (
    CERTAIN,
    GUESS,
    ROLE,
    SPACE,
    Atom,
    Group,
    Layout,
    fresh,
    joined,
    leaves,
    size_of,
    tie,
)
from foretell.model.importers.torch_tape import Tape, next_step
from foretell.model.operators.attention import Attention
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.matmul import Matmul


def _matmul(
    call: TorchCall,
    x: torch.Tensor,
    w: torch.Tensor,
    batch: int,
    bias: torch.Tensor | None = None,
) -> None:
    """y[batch, row, out] = x[batch, row, in] w[batch, in, out]; whichever is a weight is called w."""
    tape, output = call.tape, call.outputs[0]
    left, right = tape.layout(x), tape.layout(w)
    for a, b in zip(left[:batch], right[:batch], strict=True):
        tie(a, b)
    shared = tuple(max(a, b, key=len) for a, b in zip(left[:batch], right[:batch], strict=True))
    rows, inner = joined(left[batch:-1]), left[-1]
    columns = joined(right[batch + 1 :])
    tie(inner, right[batch])
    layout: Layout = (*shared, *left[batch:-1], *right[batch + 1 :])
    inputs = {"x": x, "w": w}
    if tape.of(x).is_weight and not tape.of(w).is_weight:  # W x: the same product read the other way
        inputs, rows, columns = {"x": w, "w": x}, columns, rows
    _tie_bias(tape, bias, layout)
    loops = {"batch": joined(shared), "row": rows, "in": inner or right[batch], "out": columns}
    _add_product(tape, Matmul(), loops, inputs, bias, output, layout)


def _add_product(
    tape: Tape,
    operator: Matmul | Convolution,
    loops: dict[str, Group],
    inputs: dict[str, torch.Tensor],
    bias: torch.Tensor | None,
    output: torch.Tensor,
    layout: Layout,
) -> None:
    """Write a product down; a bias that is trained while its weight is frozen is a sum of its own."""
    alone = bias is not None and bias.requires_grad and not inputs["w"].requires_grad
    operands = inputs if bias is None or alone else {**inputs, "b": bias}
    product = tape.add(operator, loops, operands, [(output, layout)], counted=output.dim() > 1)
    if bias is not None and alone:
        item = joined(tape.layout(bias))
        rest = tuple(atom for atom in leaves(joined(layout)) if atom not in leaves(item))
        with tape.one_step(product.sequence if product.needs else next_step() - 1):
            tape.add(Broadcast("add"), {"item": item, "repeat": rest}, {"x": output, "w": bias}, [(output, layout)])


def _tie_bias(tape: Tape, bias: torch.Tensor | None, layout: Layout) -> None:
    """A bias has the last dims of what it is added to."""
    known = tape.layout(bias) if bias is not None else ()
    for back in range(1, min(len(known), len(layout)) + 1):
        tie(known[-back], layout[-back])


def _mm(call: TorchCall) -> None:
    _matmul(call, call["self"], call["mat2"], batch=0)


def _addmm(call: TorchCall) -> None:
    _matmul(call, call["mat1"], call["mat2"], batch=0, bias=call["self"])


def _bmm(call: TorchCall) -> None:
    _matmul(call, call["self"], call["mat2"], batch=1)


def _baddbmm(call: TorchCall) -> None:
    _matmul(call, call["batch1"], call["batch2"], batch=1, bias=call["self"])


def _mv(call: TorchCall) -> None:
    _matmul(call, call["self"], call["vec"], batch=0)


def _addmv(call: TorchCall) -> None:
    _matmul(call, call["mat"], call["vec"], batch=0, bias=call["self"])


def _dot(call: TorchCall) -> None:
    _matmul(call, call["self"], call["tensor" if call.name == "aten.dot" else "other"], batch=0)


def _linear(call: TorchCall) -> None:
    """A dense layer that was not taken apart."""
    tape, x, w, bias, output = call.tape, call["input"], call["weight"], call["bias"], call.outputs[0]
    left, right = tape.layout(x), tape.layout(w)
    tie(left[-1], right[-1])
    layout = (*left[:-1], *right[:-1])
    _tie_bias(tape, bias, layout)
    loops = {"batch": (), "row": joined(left[:-1]), "in": left[-1], "out": joined(right[:-1])}
    _add_product(tape, Matmul(), loops, {"x": x, "w": w}, bias, output, layout)


def _convolution(call: TorchCall) -> None:
    tape, x, w, bias, output = call.tape, call["input"], call["weight"], call["bias"], call.outputs[0]
    groups, transposed = call["groups"], bool(call["transposed"])
    known, weight = tape.layout(x), tape.layout(w)
    count = output.dim() - 2
    names = SPACE[-count:] if count > 1 else ("width",)
    filters = weight[0]
    if transposed:  # its weight has the filters of one group inside
        filters = weight[1] if groups == 1 else fresh(output.shape[1])
    if groups == 1:
        tie(known[1], weight[0 if transposed else 1])
    _call_dims((known[1], filters), ("channel", "channel"), ROLE)
    if count > 1:
        _call_dims(known[2:], names, ROLE)
    space = tuple(
        group if size == before else fresh(size, "" if count == 1 else name, ROLE, like=group)
        for group, before, size, name in zip(known[2:], x.shape[2:], output.shape[2:], names, strict=True)
    )
    layout = (known[0], filters, *space)
    one = groups == 1
    loops: dict[str, Group] = {
        "sample": known[0],
        "group": fresh(groups, "group"),
        "in": known[1] if one else fresh(x.shape[1] // groups, "channel"),
        "out": filters if one else fresh(output.shape[1] // groups, "channel"),
    }
    loops |= dict(zip(SPACE[-count:], known[2:] if transposed else space, strict=True))
    operator = Convolution(
        tuple(w.shape[2:]),
        _each(call["stride"], count),
        _each(call["padding"], count),
        _each(call["dilation"], count),
        transposed,
    )
    if bias is not None:
        tie(tape.layout(bias)[0], filters)
    _add_product(tape, operator, loops, {"x": x, "w": w}, bias, output, layout)


def _each(value: Any, count: int) -> tuple[int, ...]:
    values = tuple(value)
    return values * count if len(values) == 1 else values


def _call_dims(groups: tuple[Group, ...], names: tuple[str, ...], sure: int) -> None:
    """Propose a name for each dim that is one atom."""
    for group, name in zip(groups, names, strict=True):
        atoms = leaves(group)
        if len(atoms) == 1:
            atoms[0].call(name, sure)


def _embedding(call: TorchCall) -> None:
    tape, table, index, output = call.tape, call["weight"], call["indices"], call.outputs[0]
    rows, (vocab, *features) = tape.layout(index), tape.layout(table)
    _call_dims((vocab,), ("vocab",), ROLE)
    if len(features) == 1:
        _call_dims((features[0],), ("hidden",), GUESS)
    loops = {"row": joined(rows), "vocab": vocab, "feature": joined(features)}
    tape.add(Embedding(), loops, {"x": index, "w": table}, [(output, (*rows, *features))])


def _grouped_matmul(call: TorchCall) -> None:
    """Rows sorted by expert, each through its expert's matrix."""
    tape, output = call.tape, call.outputs[0]
    x, w = call.tensors[0], call.tensors[1]
    if x.dim() == w.dim() == 3:
        _matmul(call, x, w, batch=1)
        return
    left, right = tape.layout(x), tape.layout(w)
    if x.dim() == 2 and w.dim() == 3:
        _call_dims((right[0],), ("expert",), CERTAIN)
        tie(left[1], right[1])
        loops = {"expert": right[0], "row": left[0], "in": left[1], "out": right[2]}
        layout = (left[0], right[2])
    else:  # two flat matrices, cut along what is summed: the weight gradient of the above
        expert = fresh(output.shape[0], "expert", CERTAIN)
        loops = {"expert": expert, "row": left[1], "in": left[0], "out": right[1]}
        layout = (expert, left[0], right[1])
    tape.add(GroupedMatmul(), loops, {"x": x, "w": w}, [(output, layout)], counted=True)


class HowAttended(NamedTuple):
    """What an attention is told besides queries, keys and values."""

    mask: torch.Tensor | None = None
    causal: bool = False
    dropout: float = 0.0
    by_rule: bool = True  # whether the operator says what is kept; else what autograd kept
    kernel: str = ""  # empty: that which a GPU would take
    window: int = 0
    capped: bool = False
    sink: torch.Tensor | None = None


def attend(
    tape: Tape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, outputs: list[torch.Tensor], how: HowAttended
) -> None:
    """Attention of q[sample..., head, query, qk] over k and v as one operator."""
    mask, by_rule = how.mask, how.by_rule
    of_q, of_k, of_v = tape.layout(q), tape.layout(k), tape.layout(v)
    for a, b in zip(of_k[:-1], of_v[:-1], strict=True):
        tie(a, b)
    tie(of_q[-1], of_k[-1])
    outer = max(0, q.dim() - 3)
    for a, b in zip(of_q[:outer], of_k[:outer], strict=True):
        tie(a, b)
    head, kv_head = (of_q[-3], of_k[-3]) if q.dim() > 2 else ((), ())
    share = max(1, size_of(head) // max(1, size_of(kv_head)))
    if share == 1:
        tie(head, kv_head)
    for group in (head, kv_head):
        _call_dims((group,), ("head",), CERTAIN)
    for group in (of_q[-1], of_v[-1]):
        _call_dims((group,), ("head_dim",), CERTAIN)
    _call_dims((of_q[-2],), ("sequence",), GUESS)
    _call_dims((of_k[-2],), ("sequence",), GUESS)
    loops: dict[str, Group] = {
        "sample": joined(of_q[:outer]),
        "kv_head": kv_head,
        "share": (Atom(share, "share", CERTAIN),),
        "query": of_q[-2],
        "key": (Atom(size_of(of_k[-2]), "key", CERTAIN),),
        "qk": of_q[-1],
        "value": of_v[-1],
    }
    if mask is not None and mask.dtype is torch.bool and by_rule:
        mask = _as_bias(tape, mask, q.dtype)
    inputs = {"q": q, "k": k, "v": v} | ({"bias": mask} if mask is not None else {})
    fixed = mask is not None and not mask.requires_grad
    if how.sink is not None:
        inputs["sink"] = how.sink
        tie(tape.layout(how.sink)[0], head)
    operator = Attention(
        how.kernel or _kernel(mask), causal=how.causal, window=how.window, dropout=how.dropout > 0, fixed_bias=fixed,
        capped=how.capped,
    )  # fmt: skip
    layout = (*of_q[:-1], of_v[-1])
    more = [(extra, tuple(fresh(size) for size in extra.shape)) for extra in outputs[1:]]
    tape.add(operator, loops, inputs, [(outputs[0], layout), *more], by_rule=by_rule)


def _as_bias(tape: Tape, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """PyTorch turns a mask of truths into numbers to add, at every call, and keeps those."""
    with torch._C._DisableTorchDispatch():
        bias = torch.empty(mask.shape, dtype=dtype, device="meta")
    layout = tape.layout(mask)
    tape.add(Elementwise("where"), {"item": joined(layout)}, {"x": mask}, [(bias, layout)])
    return bias


def _kernel(mask: torch.Tensor | None) -> str:
    """The kernel that a GPU takes, of those that the program allows."""
    allowed = torch.backends.cuda
    if mask is None and (allowed.flash_sdp_enabled() or allowed.cudnn_sdp_enabled()):
        return "flash"  # takes no mask
    return "efficient" if allowed.mem_efficient_sdp_enabled() or allowed.flash_sdp_enabled() else "math"


def _attention_kernel(call: TorchCall) -> None:
    """A kernel that the user called by its own name."""
    mask = call["attn_mask"] if call["attn_mask"] is not None else call["attn_bias"]
    how = HowAttended(mask, bool(call["is_causal"]), call["dropout_p"] or 0.0, by_rule=False)
    attend(call.tape, call["query"], call["key"], call["value"], call.outputs, how)


def _own_kernel(kernel: str, call: TorchCall) -> None:
    q, k, v = call.tensors[:3]
    attend(call.tape, q, k, v, call.outputs, HowAttended(causal=True, by_rule=False, kernel=kernel))


def _local_attention(call: TorchCall) -> None:
    """The zoo's own: windows, soft caps, sinks."""
    told = {"window": call["window"], "capped": call["cap"] > 0, "sink": call["sink"]}
    how = HowAttended(causal=True, by_rule=False, kernel="local", **told)
    attend(call.tape, call["query"], call["key"], call["value"], call.outputs, how)


def own_kernels(kernel: str, called: Iterable[str]) -> dict[str, Callable[[TorchCall], None]]:
    """Operators of libraries that are an attention kernel: causal, of queries, keys and values."""
    return dict.fromkeys(called, functools.partial(_own_kernel, kernel))


TABLE: dict[str, Callable[[TorchCall], None]] = {
    "aten.mm": _mm,
    "aten._int_mm": _mm,
    "aten._scaled_mm": _mm,
    "aten.addmm": _addmm,
    "aten.bmm": _bmm,
    "aten.baddbmm": _baddbmm,
    "aten.mv": _mv,
    "aten.addmv": _addmv,
    "aten.dot": _dot,
    "aten.vdot": _dot,
    "aten.linear": _linear,
    "aten.convolution": _convolution,
    "aten._convolution": _convolution,
    "aten.embedding": _embedding,
    "aten._grouped_mm": _grouped_matmul,
    "foretell.grouped_mm": _grouped_matmul,
    "foretell.local_attention": _local_attention,
    "aten._scaled_dot_product_flash_attention": _attention_kernel,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention_kernel,
    "aten._scaled_dot_product_efficient_attention": _attention_kernel,
    "aten._scaled_dot_product_cudnn_attention": _attention_kernel,
    **{word: found for name in ATTENTIONS for word, found in own_kernels(name, attention_kernel(name).traced).items()},
}
