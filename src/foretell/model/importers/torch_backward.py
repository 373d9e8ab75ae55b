# pyright: basic
"""Matrix products of the backward pass, by the forward operator that caused them.

Autograd numbers its steps as the forward pass makes them, and says in the backward pass which one is
running. So the work of every backward step can be held against what our operator says; an
autograd.Function or an unknown operator gets what was counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from foretell.model.importers.torch_dims import leaves
from foretell.model.importers.torch_tape import AutogradFunction, Recorded, Tape
from foretell.model.operators.layout import View
from foretell.model.operators.unknown import Unknown
from foretell.units import WIDTH, product


def _attention(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(q.shape, _with_heads(k, q), _with_heads(v, q))


def _attention_backward(gradient: Any, q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_backward_flop_count(gradient.shape, q.shape, _with_heads(k, q), _with_heads(v, q))


def _with_heads(shared: torch.Tensor, q: torch.Tensor) -> tuple[int, ...]:
    """A key head counts once for every query head that uses it."""
    return (*shared.shape[:-3], q.shape[-3], *shared.shape[-2:])


def _convolution_backward(gradient: Any, x: Any, w: Any, *args: Any, **kwargs: Any) -> int:
    """As often as the forward pass for each gradient, whatever the groups (torch counts them twice)."""
    *_, transposed, _padding, _groups, wanted = args
    return conv_flop_count(x.shape, w.shape, gradient.shape, transposed=transposed) * sum(wanted[:2])


def _grouped(x: Any, w: Any, *args: Any, **kwargs: Any) -> int:
    """Every row times one matrix, or one matrix per group summed over its rows."""
    products = x.numel() * w.shape[-1]
    return 2 * products // x.shape[0] if x.dim() == 3 and w.dim() == 2 else 2 * products


def _grouped_weight_gradient(x: Any, gradient: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * x.numel() * gradient.shape[-1]


FORMULAS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::convolution_backward": _convolution_backward,
    "aten::_grouped_mm": _grouped,
    "foretell::grouped_mm": _grouped,
    "foretell::local_attention": _attention,
    "foretell::local_attention_backward": _attention_backward,
    "foretell::sparse_attention": _attention,
    "foretell::sparse_attention_backward": _attention_backward,
    "foretell::grouped_mm_weight_gradient": _grouped_weight_gradient,
}
"""What torch's counter has no formula for, or a wrong one. They take tensors, not shapes."""


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Matrix flops of one dispatched call."""
    formula = FORMULAS.get(func._schema.name)
    if formula is not None:
        return int(formula(*args, **kwargs))
    packet = func.overloadpacket
    counted = flop_registry.get(packet)
    return int(counted(*args, **kwargs, out_val=result)) if counted else 0


PRIM_DEVICE = torch.ops.prim.device.default


def device_of(tensor: torch.Tensor) -> torch.device:
    """Where a tensor says it is."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else PRIM_DEVICE(tensor)


class BackwardCounter(TorchDispatchMode):
    """Counts matrix flops by the step of autograd that is running."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the guard costs time in every call

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is PRIM_DEVICE:
            return device_of(args[0])
        result = func(*args, **kwargs)
        step = torch._C._current_autograd_node()
        if step is not None:
            flops = flops_of(func, args, kwargs, result)
            if flops:
                self.flops[step._sequence_nr()] += flops
        return result


def predicted(node: Recorded) -> int:
    """Matrix flops that our operator says its backward pass has."""
    sizes = {name: product(atom.size for atom in leaves(group)) for name, group in node.loops.items()}
    widths = {name: WIDTH[traced.dtype] for name, traced in node.inputs.items()} | {"y": WIDTH[node.outputs[0].dtype]}
    return sum(node.operator.part(part, sizes, widths).matrix for part in parts(node))


def parts(node: Recorded) -> list[str]:
    """Which gradients run for the operands that need one."""
    weights = node.operator.weight_operands
    found: list[str] = []
    if any(name not in weights for name in node.needs):
        found.append("input_gradient")
    if any(name in weights for name in node.needs):
        found.append("weight_gradient")
    return found


def steps_behind(value: torch.Tensor) -> set[int]:
    """The numbers of all steps of autograd that the backward pass of a value runs."""
    found: set[int] = set()
    seen: set[Any] = set()
    waiting = [value.grad_fn]
    while waiting:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        found.add(step._sequence_nr())
        waiting.extend(following for following, _ in step.next_functions)
    return found


def settle(tape: Tape, counted: Counter[int], reached: set[int]) -> None:
    """Hold the tape against what ran: drop gradients that nobody asked for, add what we did not know."""
    for function in tape.functions:
        _settle_function(tape, function, counted, reached)
    wrong: Counter[str] = Counter()
    for node in tape.nodes:
        if node.sequence < 0 or node.function is not None:
            continue
        if node.sequence not in reached and not _in_place(node):
            node.needs = ()  # no path to the loss
            continue
        flops = counted[node.sequence]
        if isinstance(node.operator, Unknown):
            node.operator = msgspec.structs.replace(node.operator, backward_flops=flops)
        elif node.counted and predicted(node) != flops:
            wrong[type(node.operator).__name__.lower()] += 1
    for kind, count in wrong.items():
        tape.notes.append(f"the backward pass of {count} {kind} operators does other work than their formula says")


def _in_place(node: Recorded) -> bool:
    """Autograd gives an update of a view a number that we do not see."""
    memory = node.outputs[0].memory
    return not isinstance(node.operator, View) and any(used.memory is memory for used in node.inputs.values())


def _settle_function(tape: Tape, function: AutogradFunction, counted: Counter[int], reached: set[int]) -> None:
    """The backward pass of an autograd.Function is its author's; it may do more or less than usual."""
    nodes = [node for node in function.nodes if node.needs]
    if not nodes:
        return
    if function.sequence not in reached:
        for node in nodes:
            node.needs = ()
        return
    flops = counted[function.sequence]
    usual = sum(predicted(node) for node in nodes)
    if flops == usual:
        return
    if flops < usual:  # keep the memory traffic of the others, and count the products once, below
        for node in nodes:
            node.needs = () if predicted(node) else node.needs
        usual = 0
    last = nodes[-1]
    if isinstance(last.operator, Unknown):
        last.operator = msgspec.structs.replace(last.operator, backward_flops=flops - usual)
        last.needs = last.needs or tuple(last.inputs)[:1]
        return
    extra = Recorded(
        last.path,
        last.frame,
        Unknown(f"{function.name} backward", backward_flops=flops - usual),
        {"read": (), "item": ()},
        {"x": last.outputs[0]},
        [type(last.outputs[0])((), last.outputs[0].dtype, last.outputs[0].memory)],
        needs=("x",),
        function=function,
    )
    tape.nodes.insert(tape.nodes.index(last) + 1, extra)
