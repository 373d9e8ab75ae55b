# pyright: basic
"""Any PyTorch module as a graph: one training step with fake tensors, written down.

    graph = trace(module, (images,))
    graph = trace(lambda: Model(config), {"input_ids": tokens, "labels": tokens})

No weights are in memory: parameters and inputs are shapes only. What is traced is what eager
PyTorch runs, with attention, dropout, RMS norm, the cross-entropy loss and recurrent layers as one
operator each (`torch_composites`).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from foretell.errors import BadInput, ForetellError, TraceFailed
from foretell.model.graph import Graph
from foretell.model.importers.torch_backward import BackwardCounter, settle, steps_behind
from foretell.model.importers.torch_dims import CERTAIN, GUESS, ROLE, Atom, Group, Layout, fresh
from foretell.model.importers.torch_factory import Built
from foretell.model.importers.torch_failure import failure
from foretell.model.importers.torch_fake import as_fake, building, faked, mode_of, quiet
from foretell.model.importers.torch_graph import graph_of
from foretell.model.importers.torch_record import forward_recorder
from foretell.model.importers.torch_repeats import LeftOut, NotAlike, shortened
from foretell.model.importers.torch_tape import Tape

Inputs = torch.Tensor | Sequence[Any] | Mapping[str, Any]


def trace(
    module: torch.nn.Module | Callable[[], torch.nn.Module],
    inputs: Inputs | Callable[[], Inputs],
    loss: Callable[[Any], torch.Tensor] | None = None,
    name: str = "",
    batch: int | None = None,
) -> Graph:
    """The graph of one training step of a module (or of what a function builds) on these inputs.

    `inputs` are a tensor, a tuple of arguments or a dict of keyword arguments (or a function that
    makes them); `loss` turns the module's output into the number that is trained on. The batch is
    the first dim of the first input.
    """
    mode = mode_of(module)
    with mode, building():
        built = module if isinstance(module, torch.nn.Module) else module()
        given = inputs() if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs
    return trace_in(mode, built, given, loss, name or type(built).__name__, batch)


def trace_in(
    mode: FakeTensorMode,
    module: torch.nn.Module,
    inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    name: str,
    batch: int | None = None,
    left_out: tuple[LeftOut, ...] = (),
) -> Graph:
    """The same for a module that was built, in the fake mode that it was built in, without layers like others."""
    tape = Tape()
    module = getattr(module, "_orig_mod", module)  # what torch.compile wrapped
    try:
        with mode, quiet(), torch.compiler.set_stance("force_eager"), torch.enable_grad(), faked(module):
            args, kwargs = _arguments(tree_map_only(torch.Tensor, lambda t: as_fake(mode, t), inputs))
            size = batch or _batch(args, kwargs)
            _introduce(tape, module, args, kwargs, size)
            with forward_recorder(module, tape):
                output = module(*args, **kwargs)
                tape.path = "loss"
                value = _loss(tape, output, loss)
            tape.assign_kept()
            _backward(tape, value)
            return graph_of(tape, module, name, size, left_out)
    except NotAlike:
        raise
    except ForetellError as problem:
        raise problem.within(name) from None
    except (Exception, SystemExit) as problem:
        raise failure(problem, name, module) from problem


def trace_layers(mode: FakeTensorMode, built: Built, name: str) -> Graph:
    """The same, where layers that are alike are traced a few times; where that does not go, all of them."""
    with shortened(built.module) as left_out:
        if left_out:
            with contextlib.suppress(NotAlike, ForetellError):
                return trace_in(mode, built.module, built.inputs, built.loss, name, left_out=left_out)
    return trace_in(mode, built.module, built.inputs, built.loss, name)


def _backward(tape: Tape, value: torch.Tensor) -> None:
    if not value.requires_grad:
        tape.notes.append("nothing is trained: no parameter with a gradient reaches the loss")
        return
    try:
        reached = steps_behind(value)
        with BackwardCounter() as counter:
            value.backward()
    except ForetellError:
        raise
    except Exception as problem:
        tape.notes.append(f"the backward pass could not be run, so its work is by formula: {problem}".splitlines()[0])
        return
    settle(tape, counter.flops, reached)


def _loss(tape: Tape, output: Any, loss: Callable[[Any], torch.Tensor] | None) -> torch.Tensor:
    """The number that is trained on."""
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            kind = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise BadInput(f"the loss gives {kind}, not one number", fix="a loss that averages over the batch")
        return value
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.numel() == 1:
        return own
    floating = [t for t in tree_leaves(_plain(output)) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    trained = [t for t in floating if t.requires_grad] or floating
    if not trained:
        raise TraceFailed("the module gives no floating-point tensor to train on", fix="return (module, inputs, loss)")
    if len(trained) == 1 and trained[0].numel() == 1:
        return trained[0]
    tape.notes.append("no loss was given: the mean of the module's outputs stands for it")
    return (
        torch.stack([tensor.mean().reshape(()) for tensor in trained]).sum() if len(trained) > 1 else trained[0].mean()
    )


def _plain(output: Any) -> Any:
    """Outputs that are classes of their own as something whose tensors can be found."""
    if isinstance(output, (torch.Tensor, list, tuple)):
        return output
    if isinstance(output, Mapping):
        return dict(output)
    return list(vars(output).values()) if hasattr(output, "__dict__") else output


def _introduce(tape: Tape, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], batch: int) -> None:
    """Write down what no operator makes: inputs, parameters, buffers."""
    sample: Group = (Atom(batch, "sample", CERTAIN),)
    for name, value in _named(module, args, kwargs):
        for at, tensor in enumerate(t for t in tree_leaves(value) if isinstance(t, torch.Tensor)):
            layout = _input_layout(tensor, batch, sample)
            tape.outside(tensor, layout, "input", name if at == 0 else f"{name}.{at}")
    for name, tensor in module.named_parameters():
        layout = tuple(fresh(size) for size in tensor.shape)
        tape.outside(tensor, layout, "parameter", name, trainable=tensor.requires_grad)
    for name, tensor in module.named_buffers():
        tape.outside(tensor, tuple(fresh(size) for size in tensor.shape), "buffer", name)


POSITIONS = {
    (True, 2): ("sequence",),
    (True, 3): ("sequence", "feature"),
    (False, 2): ("feature",),
    (False, 3): ("sequence", "feature"),
    (False, 4): ("channel", "height", "width"),
    (False, 5): ("channel", "depth", "height", "width"),
}
"""What the dims after the batch probably are, for whole numbers or not and the number of dims."""


def _input_layout(tensor: torch.Tensor, batch: int, sample: Group) -> Layout:
    if tensor.dim() == 0 or tensor.shape[0] != batch:
        return tuple(fresh(size) for size in tensor.shape)
    whole = not tensor.is_floating_point()
    names = POSITIONS.get((whole, tensor.dim()), ("",) * (tensor.dim() - 1))
    sure = ROLE if whole else GUESS
    return (sample, *(fresh(size, name, sure) for size, name in zip(tensor.shape[1:], names, strict=True)))


def _named(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Inputs under the names that the module's forward has for them."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"input{at}" for at in range(len(names), len(args))]
    return [*zip(names, args, strict=False), *kwargs.items()]


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    for tensor in tree_leaves((args, kwargs)):
        if isinstance(tensor, torch.Tensor) and tensor.dim() > 0:
            return int(tensor.shape[0])
    raise BadInput("no input is a tensor with a batch dim", fix="(module, inputs) with at least one tensor in inputs")


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        return tuple(inputs), {}
    raise BadInput(f"inputs are a {type(inputs).__name__}", fix="a tensor, a tuple of arguments or a dict of keywords")
