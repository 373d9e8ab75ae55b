"""Recurrent layers whose memory is known: a loop over time that keeps only what its gradient needs.

PyTorch's own layers keep a workspace whose size depends on the library that runs them. These
compute the same from weights of the same shapes, and keep the input, the hidden states and

    rnn   nothing else: a hidden state is its only gate
    lstm  the gates after their activation, and the cell states
    gru   the gates after their activation, and the candidate's share of the old state before the
          reset gate scales it

All sequences start from a state of zeros. Sizes: x[sample, sequence, input], states
[sample, sequence, unit], gates [sample, sequence, gate * unit] in PyTorch's order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretell.model.operators.recurrent import GATES

sigmoid_gradient = torch.ops.aten.sigmoid_backward
tanh_gradient = torch.ops.aten.tanh_backward

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _start(states: Tensor) -> Tensor:
    """The state before the first step."""
    return torch.zeros_like(states[:, 0])


def _before(states: Tensor, step: int) -> Tensor:
    return states[:, step - 1] if step else _start(states)


def _gradients(x: Tensor, w: Tensor, y: Tensor, inner: Tensor, outer: Tensor) -> Gradients:
    """Gradients of the input and the four weights, from those of all gates on both their sides.

    `inner` belongs to the sums over inputs, `outer` to the sums over old states.
    """
    old = F.pad(y, (0, 0, 1, -1))  # one step late, the first from zeros
    inner_rows, outer_rows = inner.flatten(0, 1), outer.flatten(0, 1)
    from_input = inner_rows.sum(0)
    from_state = from_input if inner is outer else outer_rows.sum(0)
    return (
        inner @ w,
        inner_rows.t() @ x.flatten(0, 1),
        outer_rows.t() @ old.flatten(0, 1),
        from_input,
        from_state,
    )


class RnnFunction(torch.autograd.Function):
    """h = tanh(W x + b + U h + c)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = F.linear(x, w, b + c)
        h = _start(y)
        for step in range(y.shape[1]):
            now = y[:, step]
            h = torch.addmm(now, h, u.t(), out=now).tanh_()
        ctx.save_for_backward(x, w, u, y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, w, u, y = ctx.saved_tensors
        changes = torch.empty_like(y)
        dh = _start(y)
        for step in reversed(range(y.shape[1])):
            changes[:, step] = tanh_gradient(dh + dy[:, step], y[:, step])
            dh = changes[:, step] @ u
        return _gradients(x, w, y, changes, changes)


class LstmFunction(torch.autograd.Function):
    """cell = forget * cell + enter * candidate; h = leave * tanh(cell)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor) -> Tensor:
        gates = F.linear(x, w, b + c)
        y, cells = (gates.new_empty(*x.shape[:2], u.shape[1]) for _ in range(2))
        h = cell = _start(y)
        for step in range(y.shape[1]):
            now = gates[:, step]
            torch.addmm(now, h, u.t(), out=now)
            enter, forget, candidate, leave = now.chunk(4, dim=-1)
            for gate in (enter, forget, leave):
                gate.sigmoid_()
            candidate.tanh_()
            cell = torch.addcmul(enter * candidate, forget, cell)
            h = leave * cell.tanh()
            cells[:, step], y[:, step] = cell, h
        ctx.save_for_backward(x, w, u, y, gates, cells)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, w, u, y, gates, cells = ctx.saved_tensors
        changes = torch.empty_like(gates)
        dh = dcell = _start(y)
        for step in reversed(range(y.shape[1])):
            enter, forget, candidate, leave = gates[:, step].chunk(4, dim=-1)
            squashed = cells[:, step].tanh()
            dh = dh + dy[:, step]
            dcell = dcell + tanh_gradient(dh * leave, squashed)
            change = (
                sigmoid_gradient(dcell * candidate, enter),
                sigmoid_gradient(dcell * _before(cells, step), forget),
                tanh_gradient(dcell * enter, candidate),
                sigmoid_gradient(dh * squashed, leave),
            )
            changes[:, step] = torch.cat(change, dim=-1)
            dcell = dcell * forget
            dh = changes[:, step] @ u
        return _gradients(x, w, y, changes, changes)


class GruFunction(torch.autograd.Function):
    """candidate = tanh(W x + b + reset * (U h + c)); h = (1 - update) * candidate + update * h."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor) -> Tensor:
        gates = F.linear(x, w, b)
        units = u.shape[1]
        y, remembered = (gates.new_empty(*x.shape[:2], units) for _ in range(2))
        h = _start(y)
        for step in range(y.shape[1]):
            from_state = torch.addmm(c, h, u.t())
            reset, update, candidate = gates[:, step].chunk(3, dim=-1)
            reset.add_(from_state[:, :units]).sigmoid_()
            update.add_(from_state[:, units : 2 * units]).sigmoid_()
            remembered[:, step] = from_state[:, 2 * units :]
            candidate.addcmul_(reset, remembered[:, step]).tanh_()
            h = torch.lerp(candidate, h, update)
            y[:, step] = h
        ctx.save_for_backward(x, w, u, y, gates, remembered)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, w, u, y, gates, remembered = ctx.saved_tensors
        inner, outer = torch.empty_like(gates), torch.empty_like(gates)
        dh = _start(y)
        for step in reversed(range(y.shape[1])):
            reset, update, candidate = gates[:, step].chunk(3, dim=-1)
            dh = dh + dy[:, step]
            kept = dh * update
            dcandidate = tanh_gradient(dh - kept, candidate)
            dupdate = sigmoid_gradient(dh * (_before(y, step) - candidate), update)
            dreset = sigmoid_gradient(dcandidate * remembered[:, step], reset)
            inner[:, step] = torch.cat((dreset, dupdate, dcandidate), dim=-1)
            outer[:, step] = torch.cat((dreset, dupdate, dcandidate * reset), dim=-1)
            dh = torch.addmm(kept, outer[:, step], u)
        return _gradients(x, w, y, inner, outer)


FUNCTIONS: dict[str, type[torch.autograd.Function]] = {"rnn": RnnFunction, "lstm": LstmFunction, "gru": GruFunction}


class RecurrentLayer(nn.Module):
    """One recurrent layer in one direction, with the weights of PyTorch's cells."""

    def __init__(self, cell: str, inputs: int, units: int) -> None:
        super().__init__()
        self.cell = cell
        rows = GATES[cell] * units
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, units))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        for weight in self.parameters():
            nn.init.uniform_(weight, -1 / math.sqrt(units), 1 / math.sqrt(units))

    def forward(self, x: Tensor) -> Tensor:
        operands = (x, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        device = x.device.type
        if not torch.is_autocast_enabled(device):
            return FUNCTIONS[self.cell].apply(*operands)
        # autocast does not reach in-place operators: one type for all, chosen here
        narrow = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            return FUNCTIONS[self.cell].apply(*(operand.to(narrow) for operand in operands))
