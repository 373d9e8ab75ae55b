"""Moments of Adam in few bits: blocks of values share a scale.

The first moment is stored as a share of the largest of its block, the second as the root of that share, rounded up:
none that is more than zero becomes zero, so that no step is divided by nothing. (bitsandbytes has a table of unequal
steps instead, which takes the same bytes.) Tensors of fewer than 4,096 values are kept in fp32, as in bitsandbytes
(min_8bit_size) and torchao. Tensors are torch's, which is not imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretell.model.optimizer import OptimizerState, Step, UpdateRule

LEAST = 4096
"""Values of a tensor from which on its moments are in few bits."""

SCALE = 4
"""Bytes of the scale of a block."""


def adamw_in_bits(bits: int, block: int) -> UpdateRule:
    """The rule of AdamW whose moments take so many bits, with a scale for each block."""
    width = bits / 8 + SCALE / block
    states = (OptimizerState("first moment", width), OptimizerState("second moment", width))
    return UpdateRule(flops=20, states=states, kernels=1, step=_step(bits, block))


def _step(bits: int, block: int) -> Step:
    most = 2 ** (bits - 1) - 1

    def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
        own, slope = _local(weight), _local(gradient)
        state["step"] = state.get("step", 0) + 1
        small = own.numel() < LEAST or own.numel() % block
        first = _kept(own, state, "first", small, lambda codes: (codes - most) / most, bits)
        second = _kept(own, state, "second", small, lambda codes: (codes / (2 * most)) ** 2, bits)
        (one, two), rate = settings["betas"], settings["lr"]
        first.lerp_(slope.float(), 1 - one)
        second.mul_(two).addcmul_(slope.float(), slope.float(), value=1 - two)
        root = (second / (1 - two ** state["step"])).sqrt_().add_(settings["eps"])
        own.mul_(1 - rate * settings["weight_decay"])
        own.add_(first / root * (-rate / (1 - one ** state["step"])))
        if not small:
            _keep(state, "first", first, block, bits, lambda share: (share * most).round() + most)
            _keep(state, "second", second, block, bits, lambda share: (share.sqrt() * 2 * most).ceil())

    return step


def _local(values: Any) -> Any:
    """The share of a weight that a rank has."""
    return values.to_local() if hasattr(values, "to_local") else values


def _kept(own: Any, state: dict[str, Any], name: str, small: bool, read: Callable[[Any], Any], bits: int) -> Any:
    """A moment in fp32, zeros at first; small ones are kept as they are."""
    if small or f"{name} codes" not in state:
        return state.setdefault(name, own.float().zero_()) if small else own.float().clone().zero_()
    codes, scale = state[f"{name} codes"], state[f"{name} scale"]
    if bits == 4:
        codes = codes.unsqueeze(-1).bitwise_right_shift(codes.new_tensor([0, 4])).bitwise_and(15).flatten(-2)
    return (read(codes.float()) * scale).reshape(own.shape)


def _keep(state: dict[str, Any], name: str, values: Any, block: int, bits: int, written: Callable[[Any], Any]) -> None:
    rows = values.reshape(-1, block)
    scale = rows.abs().amax(1, keepdim=True)
    codes = written(rows / scale.where(scale > 0, scale.new_ones(()))).to(dtype=_bytes(values))
    if bits == 4:
        low, high = codes.unflatten(-1, (-1, 2)).unbind(-1)
        codes = low + high * 16
    state[f"{name} codes"], state[f"{name} scale"] = codes, scale


def _bytes(values: Any) -> Any:
    """torch.uint8, of a tensor's own library."""
    return (values > 0).byte().dtype
