# pyright: basic
"""Functions that are one operator to us, whatever PyTorch makes of them on this device.

On a CPU attention with dropout becomes a chain that stores all scores, dropout keeps floating-point
masks, a recurrent layer becomes thousands of small products. On the device that will train, each is
one kernel. So these functions are caught before they are taken apart, and written down as one
operator that says itself what it keeps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from foretell.model.importers import torch_recurrent
from foretell.model.importers.torch_dims import ROLE, joined, leaves, tie
from foretell.model.importers.torch_products import attend
from foretell.model.importers.torch_reductions import normalize, over_last
from foretell.model.importers.torch_tape import Tape, tie_layouts
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.dropout import Dropout
from foretell.model.operators.rotary import Rotary

FUNCTION_APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


class _Whole(torch.autograd.Function):
    """Runs a function as a single step of autograd; its backward pass only has the right shapes."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Any], *tensors: torch.Tensor) -> Any:
        ctx.shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        return run()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        made = (torch.empty(shape, dtype=dtype) for shape, dtype in ctx.shapes)
        needed = ctx.needs_input_grad[1:]
        return None, *(gradient if need else None for gradient, need in zip(made, needed, strict=True))


class Composites(TorchFunctionMode):
    """Catches the functions of the table, and every autograd.Function."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        caught = _CAUGHT.get(func)
        if caught is None or self._tape.paused:
            return func(*args, **kwargs)
        given = _arguments(func, args, kwargs)
        write = caught(given)
        if write is None:
            return func(*args, **kwargs)
        if caught is _attention:
            return self.whole(write, lambda: _heads_inside(func(*args, **kwargs)), given)
        return self.whole(write, lambda: func(*args, **kwargs), given)

    def whole(self, write: Writer, run: Callable[[], Any], given: dict[str, Any]) -> Any:
        """Run a function as one step, and write it down as one operator."""
        tensors: list[torch.Tensor] = []
        _collect(given.values(), tensors)
        step = torch.autograd._get_sequence_nr()
        with self._tape.pause():
            result = FUNCTION_APPLY(_Whole, run, *tensors)
        outputs: list[torch.Tensor] = []
        _collect((result,), outputs)
        self._tape.step = step
        write(self._tape, given, outputs)
        self._tape.step = None
        return result

    def note(self, text: str) -> None:
        """Something that the person who reads the graph should know."""
        if text not in self._tape.notes:
            self._tape.notes.append(text)

    def function(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of an autograd.Function."""
        if self._tape.paused:
            return FUNCTION_APPLY(cls, *args, **kwargs)
        fused = FUSED.get(f"{cls.__module__}.{cls.__qualname__}")
        if fused is not None:
            names, write = fused
            given = dict(zip(names, args, strict=False))
            return self.whole(write, lambda: FUNCTION_APPLY(cls, *args, **kwargs), given)
        with self._tape.inside(cls.__name__):
            return FUNCTION_APPLY(cls, *args, **kwargs)


Writer = Callable[[Tape, dict[str, Any], list[torch.Tensor]], None]


def _collect(values: Any, found: list[torch.Tensor]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            if all(value is not other for other in found):
                found.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, found)


ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
LSTM = ("input", "hx", "weights", "biases", "layers", "dropout", "train", "bidirectional", "batch_first")
BUILT_IN = {
    "scaled_dot_product_attention": ATTENTION,
    "dropout": ("input", "p", "training"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "lstm": LSTM,
    "gru": LSTM,
    "rnn_tanh": LSTM,
    "rnn_relu": LSTM,
}
"""Argument names of functions that are not written in Python."""


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        return {**bound.arguments, "name": func.__name__}
    except ValueError:
        return {**dict(zip(BUILT_IN[func.__name__], args, strict=False)), **kwargs, "name": func.__name__}


def _attention(given: dict[str, Any]) -> Writer | None:
    def write(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        attend(
            tape,
            given["query"],
            given["key"],
            given["value"],
            outputs,
            mask=given.get("attn_mask"),
            causal=bool(given.get("is_causal")),
            dropout=given.get("dropout_p") or 0.0,
        )

    return write


def _heads_inside(output: torch.Tensor) -> torch.Tensor:
    """The result as fused kernels lay it out, [sample, query, head, value] in memory."""
    return output.transpose(1, 2).contiguous().transpose(1, 2) if output.dim() == 4 else output


def _dropout(given: dict[str, Any]) -> Writer | None:
    if not given["training"] or not given["p"]:
        return None

    def write(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        layout = tape.layout(given["input"])
        node = tape.add(
            Dropout(), {"item": joined(layout)}, {"x": given["input"]}, [(outputs[0], layout)], by_rule=True
        )
        if given.get("inplace"):
            node.outputs[0].owner = node.inputs["x"].memory

    return write


def _rms_norm(given: dict[str, Any]) -> Writer | None:
    return write_rms_norm


def write_rms_norm(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
    """A root-mean-square norm over the last dims."""
    x, weights = given["input"], {"w": given.get("weight")}
    count = len(given["normalized_shape"]) if "normalized_shape" in given else 1
    layout = over_last(tape, x, count, weights)
    group, member = joined(layout[:-count]), joined(layout[-count:])
    normalize(tape, "rms", x, [(outputs[0], layout)], group, member, member, weights, by_rule=True)


def _cross_entropy(given: dict[str, Any]) -> Writer | None:
    """The loss over one class for each row; weighted and smoothed forms stay chains."""
    target = given["target"]
    plain = given["weight"] is None and not given["label_smoothing"] and given["reduction"] in ("mean", "sum")
    if not plain or target.is_floating_point() or given["input"].dim() < 1:
        return None

    def write(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        logits, target = given["input"], given["target"]
        layout = tape.layout(logits)
        at = min(1, len(layout) - 1)
        rows = (*layout[:at], *layout[at + 1 :])
        tie_layouts(tape.layout(target), rows)
        classes = leaves(layout[at])
        if len(classes) == 1:
            tokens = any(atom.root().name == "sequence" for atom in leaves(joined(rows)))
            classes[0].call("vocab" if tokens else "class", 1)
        loops = {"row": joined(rows), "class": layout[at]}
        tape.add(CrossEntropy(), loops, {"x": logits, "t": target}, [(outputs[0], ())], by_rule=True)

    return write


def _recurrent(given: dict[str, Any]) -> Writer | None:
    return torch_recurrent.write if torch_recurrent.plain(given) else None


_CAUGHT: dict[Any, Callable[[dict[str, Any]], Writer | None]] = {
    F.scaled_dot_product_attention: _attention,
    F.dropout: _dropout,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    F.cross_entropy: _cross_entropy,
    torch.lstm: _recurrent,
    torch.gru: _recurrent,
    torch.rnn_tanh: _recurrent,
    torch.rnn_relu: _recurrent,
}


def _write_rotary(tape: Tape, given: dict[str, Any], outputs: list[torch.Tensor]) -> None:
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


RECURRENT = ("input", "w", "u", "b", "c")

FUSED: dict[str, tuple[tuple[str, ...], Writer]] = {
    "foretell.modules._normalization._RmsNorm": (("input", "weight", "eps"), write_rms_norm),
    "foretell.modules._rotary._Rotate": (("x", "cos", "sin"), _write_rotary),
    "foretell.modules._recurrent.RnnFunction": (RECURRENT, torch_recurrent.one_layer("rnn")),
    "foretell.modules._recurrent.LstmFunction": (RECURRENT, torch_recurrent.one_layer("lstm")),
    "foretell.modules._recurrent.GruFunction": (RECURRENT, torch_recurrent.one_layer("gru")),
}
"""Autograd functions that stand for one kernel."""


@contextmanager
def caught(composites: Composites) -> Iterator[None]:
    """Inside, the functions are caught however they are reached.

    The mode sees calls from outside of torch; inside its own functions (multi-head attention calls
    attention) only the replaced names help.
    """
    names = [(F, name) for name in ("scaled_dot_product_attention", "dropout", "rms_norm", "cross_entropy")]
    before = [(place, name, getattr(place, name)) for place, name in names]
    checkpoint: Any = torch.utils.checkpoint
    inner = [(checkpoint, "_checkpoint_without_reentrant_generator", _no_checkpoint(composites))]
    inner.append((checkpoint, "CheckpointFunction", _no_reentrant_checkpoint(composites)))
    inner = [(place, name, value) for place, name, value in inner if hasattr(place, name)]
    before += [(place, name, getattr(place, name)) for place, name, _ in inner]
    apply = torch.autograd.Function.__dict__["apply"]
    try:
        for place, name, function in before[: len(names)]:
            setattr(place, name, _caught(composites, function))
        for place, name, value in inner:
            setattr(place, name, value)
        torch.autograd.Function.apply = classmethod(  # type: ignore[method-assign]
            lambda cls, *args, **kwargs: composites.function(cls, args, kwargs)
        )
        with composites:
            yield
    finally:
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]
        for place, name, function in before:
            setattr(place, name, function)


def _caught(composites: Composites, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return composites.call(function, args, kwargs)

    return call


CHECKPOINTED = "the module recomputes activations itself; this graph keeps them, a plan can ask for +recompute"


def _no_checkpoint(composites: Composites) -> Callable[..., Iterator[None]]:
    """Recomputation is a choice of the plan, so the model is traced without it."""

    def generator(*args: Any, **kwargs: Any) -> Iterator[None]:
        composites.note(CHECKPOINTED)
        yield

    return generator


def _no_reentrant_checkpoint(composites: Composites) -> type:
    class Passing:
        @staticmethod
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            composites.note(CHECKPOINTED)
            return function(*args)

    return Passing
