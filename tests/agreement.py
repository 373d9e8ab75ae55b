"""What PyTorch itself says about a module: parameters, flops by its own counter, bytes saved."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, sdpa_backward_flop_count, sdpa_flop_count

from foretell import modules
from foretell.model import zoo
from foretell.model.fold import unfold
from foretell.model.totals import Totals, totals
from foretell.modules import _experts, _local, _sparse  # noqa: F401  (define torch.ops.foretell)

aten = torch.ops.aten


class Measured(NamedTuple):
    parameters: int
    buffer_bytes: int
    forward_flops: int
    backward_flops: int
    saved_bytes: int


def _sdpa(q: Any, k: Any, v: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_flop_count(_heads(q), _heads(k, q), _heads(v, q))


def _sdpa_backward(grad: Any, q: Any, k: Any, v: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_backward_flop_count(_heads(grad), _heads(q), _heads(k, q), _heads(v, q))


def _heads(shape: Any, like: Any = None) -> tuple[int, ...]:
    """Shared key heads count once per query head that uses them."""
    sizes = list(shape)
    if like is not None:
        sizes[1] = like[1]
    return tuple(sizes)


def _convolution_backward(grad: Any, x: Any, w: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Each gradient that is wanted multiplies as often as the forward pass, whatever the groups."""
    *_, transposed, _output_padding, _groups, wanted = args
    return conv_flop_count(x, w, grad, transposed=transposed) * sum(wanted[:2])


def _grouped(x: Any, other: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Every row of x is multiplied by one expert's matrix, or with its own row of the gradient."""
    rows, features = x
    return 2 * rows * features * other[-1]


_KERNELS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")

# What torch's counter has no formula for on the CPU, refuses (shared key heads), or counts wrongly: the
# weight gradient of a grouped convolution `groups` times too often.
MISSING = {
    aten.convolution_backward: _convolution_backward,
    torch.ops.foretell.grouped_mm: _grouped,
    torch.ops.foretell.local_attention: _sdpa,
    torch.ops.foretell.local_attention_backward: _sdpa_backward,
    torch.ops.foretell.sparse_attention: _sdpa,
    torch.ops.foretell.sparse_attention_backward: _sdpa_backward,
    torch.ops.foretell.grouped_mm_weight_gradient: _grouped,
    **{getattr(aten, f"_scaled_dot_product_{kernel}"): _sdpa for kernel in _KERNELS},
    **{getattr(aten, f"_scaled_dot_product_{kernel}_backward"): _sdpa_backward for kernel in _KERNELS},
}


def measure(spec: str, batch: int = 1, fake: bool = True) -> Measured:
    """One real training step (with fake tensors: no memory) and what torch counted in it."""
    with FakeTensorMode() if fake else nullcontext():
        module = modules.build(spec)
        sample = modules.example(spec, batch)
        return measure_module(module, sample.inputs, lambda y: sample.loss(y, sample.target))


def measure_module(module: torch.nn.Module, inputs: tuple[Any, ...], loss: Any) -> Measured:
    weights = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}
    saved: dict[int, int] = {}
    alive: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = storage.nbytes()
            alive.append(storage)  # an address must not be used twice
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
    with FlopCounterMode(display=False, custom_mapping=MISSING) as forward, hooks:
        value = loss(module(*inputs))
    with FlopCounterMode(display=False, custom_mapping=MISSING) as backward:
        value.backward()
    return Measured(
        parameters=sum(p.numel() for p in module.parameters()),
        buffer_bytes=sum(b.numel() * b.element_size() for b in module.buffers()),
        forward_flops=forward.get_total_flops(),
        backward_flops=backward.get_total_flops(),
        saved_bytes=sum(saved.values()),
    )


def predicted(spec: str, batch: int = 1) -> Totals:
    return totals(zoo.load(spec, batch))


def assert_agrees(spec: str, batch: int = 1, fake: bool = True, saved: float = 0.02) -> None:
    """The zoo's graph and the real module have the same totals."""
    ours, theirs = predicted(spec, batch), measure(spec, batch, fake)
    assert ours.parameters == theirs.parameters
    assert ours.buffer_bytes == theirs.buffer_bytes
    assert ours.forward.matrix == theirs.forward_flops
    assert ours.backward.matrix == theirs.backward_flops
    assert abs(ours.saved_bytes - theirs.saved_bytes) <= saved * theirs.saved_bytes


def assert_same_names(spec: str) -> None:
    """Every weight and buffer is called the same, and is as large, in the graph and in the module."""
    flat = unfold(zoo.load(spec).blocks)
    ours = {t.name: t.elements() for t in flat.tensors if t.role in ("parameter", "buffer")}
    with FakeTensorMode():
        module = modules.build(spec)
    theirs = {name: t.numel() for name, t in (*module.named_parameters(), *module.named_buffers())}
    assert ours == theirs
