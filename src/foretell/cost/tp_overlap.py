"""Messages of the tensor axis that run beside the products next to them.

In the backward pass two products follow from the gradient of a layer's output: the gradient of its input, which has to
be summed over the tensor ranks, and that of its weight, which needs the input again, gathered where ranks keep shares
of it. The sum can travel while the weight's gradient is computed, the gathering while the input's is: Megatron-LM since
2022 (megatron/core/tensor_parallel/layers.py) and nanotron do so (`tensor.overlap`). Transformer Engine cuts messages
of both passes into pieces that run beside the product that makes or takes them (`tensor.pieces`; userbuffers,
tp_comm_overlap of NeMo). Layers that share an input (queries, keys and values; gate and up) are one product there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.plan.axis_names import AxisName
from foretell.plan.trainer import TensorAxis
from foretell.program.action import Communicate, Compute, TrafficKind
from foretell.units import Quantity, at_least

SUMS = ("reduce-scatter", "all-reduce")


def hidden_seconds(
    actions: Sequence[object],
    trainer: TensorAxis,
    computes: Callable[[Compute], Quantity],
    message: Callable[[Communicate], Quantity],
) -> dict[int, Quantity]:
    """Seconds of each message, by its place in a body, that nobody waits for."""
    found: dict[int, Quantity] = {}
    if not (trainer.overlap or trainer.pieces):
        return found
    for at, action in enumerate(actions):
        if not isinstance(action, Communicate) or action.axes != (AxisName.TP,):
            continue
        beside, share = _beside(actions, at, action, trainer)
        if beside is not None:
            room = share * sum(computes(one) for one in _siblings(actions, beside))
            seconds = message(action)
            found[at] = seconds - at_least(seconds - room, 0.0)
    return found


def _beside(
    actions: Sequence[object], at: int, message: Communicate, trainer: TensorAxis
) -> tuple[Compute | None, float]:
    """The product that a message runs beside, and how well it does."""
    after = next((one for one in actions[at + 1 :] if isinstance(one, Compute)), None)
    if _is_product(after, message) and after is not None and _apart(message, after):
        return after, max(trainer.overlap, trainer.pieces)
    before = next((one for one in actions[at::-1] if isinstance(one, Compute)), None)
    for one in (after, before) if message.kind == "all-gather" else (before,):
        if trainer.pieces and _is_product(one, message):
            return one, trainer.pieces
    return None, 0.0


def _is_product(one: Compute | None, message: Communicate) -> bool:
    return one is not None and one.operator == "matmul" and one.path == message.path


def _apart(message: Communicate, after: Compute) -> bool:
    """A sum before a gradient of the same layer's weight, or its input gathered before the input's gradient."""
    if after.again:
        return False
    if after.part == "weight_gradient":
        return message.kind in SUMS and message.what == TrafficKind.GRADIENTS
    return after.part == "input_gradient" and message.kind == "all-gather" and message.what == TrafficKind.ACTIVATIONS


def _siblings(actions: Sequence[object], one: Compute) -> list[Compute]:
    """The same part of layers beside it with inputs as wide: they take the same input."""
    parent = one.path.rpartition(".")[0]
    return [
        other
        for other in actions
        if isinstance(other, Compute)
        and (other.operator, other.part, other.again) == (one.operator, one.part, one.again)
        and other.path.rpartition(".")[0] == parent
        and other.loops["in"] == one.loops["in"]
    ]
