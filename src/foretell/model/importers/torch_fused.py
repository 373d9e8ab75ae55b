# pyright: basic
"""Functions that are one operator to us, whatever PyTorch makes of them on this device.

On a CPU attention with dropout becomes a chain that stores all scores, dropout keeps floating-point
masks, a recurrent layer becomes thousands of small products. On the device that will train, each is
one kernel. Each entry says how to write such a call down as one operator, which says itself what it
keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from foretell.model.importers import torch_recurrent
from foretell.model.importers.torch_dims import GUESS, ROLE, joined, leaves, tie
from foretell.model.importers.torch_products import HowAttended, attend
from foretell.model.importers.torch_reductions import normalize, over_last
from foretell.model.importers.torch_tape import Tape, tie_layouts
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.dropout import Dropout
from foretell.model.operators.rotary import Rotary

Given = dict[str, Any]
"""The arguments of a call by name."""


def _always(given: Given) -> bool:
    return True


class Fused(NamedTuple):
    """A function that is one operator: the names of its arguments, how to write it down, and when."""

    arguments: tuple[str, ...]
    write: Callable[[Tape, Given, list[torch.Tensor]], None]
    fits: Callable[[Given], bool] = _always


def _attention(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    how = HowAttended(given.get("attn_mask"), bool(given.get("is_causal")), given.get("dropout_p") or 0.0)
    attend(tape, given["query"], given["key"], given["value"], outputs, how)


def laid_out(output: torch.Tensor, given: Given) -> torch.Tensor:
    """The result of attention as kernels on a GPU lay it out, whatever the kernel here does.

    Flash attention does as the queries do; others have [sample, query, head, value] in memory.
    """
    query = given["query"]
    if given.get("attn_mask") is None and output.shape == query.shape:
        return torch.empty_like(query)
    return output.transpose(1, 2).contiguous().transpose(1, 2) if output.dim() == 4 else output


def _drops(given: Given) -> bool:
    return bool(given.get("training", True) and given.get("p", 0.5))


def _dropout(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    x = given["input"]
    layout = tape.layout(x)
    node = tape.add(Dropout(), {"item": joined(layout)}, {"x": x}, [(outputs[0], layout)], by_rule=True)
    if given.get("inplace"):
        node.outputs[0].owner = node.inputs["x"].memory


def _rms_norm(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    x, weights = given["input"], {"w": given.get("weight")}
    count = len(given["normalized_shape"]) if "normalized_shape" in given else 1
    layout = over_last(tape, x, count, weights)
    group, member = joined(layout[:-count]), joined(layout[-count:])
    normalize(tape, "rms", x, [(outputs[0], layout)], group, member, member, weights, by_rule=True)


def _is_plain_loss(given: Given) -> bool:
    """One class for each row; weighted and smoothed forms stay chains."""
    plain = given.get("weight") is None and not given.get("label_smoothing")
    averaged = given.get("reduction", "mean") in ("mean", "sum")
    return plain and averaged and not given["target"].is_floating_point()


def _cross_entropy(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    logits, target = given["input"], given["target"]
    layout = tape.layout(logits)
    at = min(1, len(layout) - 1)
    rows = (*layout[:at], *layout[at + 1 :])
    tie_layouts(tape.layout(target), rows)
    classes = leaves(layout[at])
    if len(classes) == 1:
        tokens = any(atom.name == "sequence" for atom in leaves(joined(rows)))
        classes[0].call("vocab" if tokens else "class", GUESS)
    loops = {"row": joined(rows), "class": layout[at]}
    tape.add(CrossEntropy(), loops, {"x": logits, "t": target}, [(outputs[0], ())], by_rule=True)


def _rotary(tape: Tape, given: Given, outputs: list[torch.Tensor]) -> None:
    """x[..., sequence, feature] turned by the angles of cos and sin[sequence, angle]."""
    x, cos, sin = given["x"], given["cos"], given["sin"]
    layout, angles = tape.layout(x), tape.layout(cos)
    tie_layouts(angles, tape.layout(sin))
    tie(layout[-2], angles[0])
    for atom in leaves(angles[1])[:1]:
        atom.call("angle", ROLE)
    loops = {"row": joined(layout[:-2]), "position": layout[-2], "feature": layout[-1], "angle": angles[1]}
    operator = Rotary(partial=2 * cos.shape[-1] < x.shape[-1])
    tape.add(operator, loops, {"x": x, "cos": cos, "sin": sin}, [(outputs[0], layout)], by_rule=True)


ATTENTION = Fused(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), _attention)
_LOSS = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
_LAYERS = ("input", "hx", "weights", "biases", "layers", "dropout", "train", "bidirectional", "batch_first")
_CELL = ("input", "w", "u", "b", "c")


def _recurrent(cell: str) -> Fused:
    return Fused(_LAYERS, torch_recurrent.all_layers(cell), torch_recurrent.is_plain)


CALLS: dict[Any, Fused] = {
    F.scaled_dot_product_attention: ATTENTION,
    F.dropout: Fused(("input", "p", "training", "inplace"), _dropout, _drops),
    torch.dropout: Fused(("input", "p", "train"), _dropout, lambda given: bool(given["train"] and given["p"])),
    F.rms_norm: Fused(("input", "normalized_shape", "weight", "eps"), _rms_norm),
    torch.rms_norm: Fused(("input", "normalized_shape", "weight", "eps"), _rms_norm),
    F.cross_entropy: Fused(_LOSS, _cross_entropy, _is_plain_loss),
    torch.lstm: _recurrent("lstm"),
    torch.gru: _recurrent("gru"),
    torch.rnn_tanh: _recurrent("rnn"),
    torch.rnn_relu: _recurrent("rnn"),
}
"""Functions of torch."""

FUNCTIONS: dict[str, Fused] = {
    "foretell.modules._normalization._RmsNorm": Fused(("input", "weight", "eps"), _rms_norm),
    "foretell.modules._rotary._Rotate": Fused(("x", "cos", "sin"), _rotary),
    "foretell.modules._recurrent.RnnFunction": Fused(_CELL, torch_recurrent.one_layer("rnn")),
    "foretell.modules._recurrent.LstmFunction": Fused(_CELL, torch_recurrent.one_layer("lstm")),
    "foretell.modules._recurrent.GruFunction": Fused(_CELL, torch_recurrent.one_layer("gru")),
}
"""Autograd functions that stand for one kernel, by name."""
