"""Causal attention to a window of places, with sinks and soft caps on scores, as one operator of its own.

No score outlives its block of queries, and the backward pass makes scores again, as fused kernels do. With a sink the
probabilities of a row are those of a softmax that has one score more; as the sink has no value, output and gradients
are flash attention's own with that sum (Dao 2023, arXiv 2307.08691, algorithms 1 and 2).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

ROWS = 256
"""Queries of one block."""


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _shared(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Each key and value head as often as queries share it, in fp32 at least."""
    return _wide(x).repeat_interleave(heads // x.shape[1], dim=1)


def _blocks(places: int, window: int) -> Generator[tuple[slice, slice]]:
    """Queries, and the keys that any of them sees."""
    for first in range(0, places, ROWS):
        last = min(first + ROWS, places)
        yield slice(first, last), slice(max(0, first - window + 1) if window else 0, last)


def _scores(q: torch.Tensor, k: torch.Tensor, at: tuple[slice, slice], window: int, cap: float) -> torch.Tensor:
    """Scores of a block, capped; minus infinity where a query does not look."""
    rows, columns = (torch.arange(part.start, part.stop, device=q.device) for part in at)
    scores = q @ k.mT
    if cap:
        scores = (scores / cap).tanh() * cap
    behind = rows[:, None] - columns
    return scores.masked_fill((behind < 0) | (behind >= window if window else behind < 0), -torch.inf)


def _output(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[sample, head, sequence, head_dim] that lies as [sample, sequence, head, head_dim], ready to be joined."""
    sample, head, sequence, _ = query.shape
    return query.new_empty(sample, sequence, head, value.shape[-1]).transpose(1, 2)


@torch.library.custom_op("foretell::local_attention", mutates_args=())
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sink: torch.Tensor | None,
    window: int,
    cap: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the logarithm of each row's sum of exponentials."""
    q = _wide(query) * scale
    k, v = (_shared(part, query.shape[1]) for part in (key, value))
    y = _output(query, value)
    sums = q.new_empty(query.shape[:-1])
    for rows, columns in _blocks(query.shape[2], window):
        scores = _scores(q[:, :, rows], k[:, :, columns], (rows, columns), window, cap)
        total = scores.logsumexp(-1)
        if sink is not None:
            total = torch.logaddexp(total, sink.to(total.dtype)[:, None])
        sums[:, :, rows] = total
        y[:, :, rows] = (scores - total[..., None]).exp() @ v[:, :, columns]
    return y, sums


@attention.register_fake
def _(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sink: torch.Tensor | None,
    window: int,
    cap: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return _output(query, value), query.new_empty(query.shape[:-1], dtype=wide)


@torch.library.custom_op("foretell::local_attention_backward", mutates_args=())
def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kept: list[torch.Tensor],
    window: int,
    cap: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key and value; `kept` are the output and the sums."""
    y, sums = kept
    q, dy = _wide(query) * scale, _wide(gradient)
    k, v = (_shared(part, query.shape[1]) for part in (key, value))
    along = (dy * y).sum(-1, keepdim=True)
    of_q, of_k, of_v = (torch.zeros_like(part) for part in (q, k, v))
    for rows, columns in _blocks(query.shape[2], window):
        scores = _scores(q[:, :, rows], k[:, :, columns], (rows, columns), window, cap)
        chances = (scores - sums[:, :, rows, None]).exp()
        of_v[:, :, columns] += chances.mT @ dy[:, :, rows]
        change = chances * (dy[:, :, rows] @ v[:, :, columns].mT - along[:, :, rows])
        if cap:
            change = change * (1 - (scores.masked_fill(scores.isinf(), 0.0) / cap).square())
        of_q[:, :, rows] = change @ k[:, :, columns]
        of_k[:, :, columns] += change.mT @ q[:, :, rows]
    of_k, of_v = (part.unflatten(1, (key.shape[1], -1)).sum(2) for part in (of_k, of_v))
    return (of_q * scale).to(query.dtype), of_k.to(key.dtype), of_v.to(value.dtype)


@attention_backward.register_fake
def _(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kept: list[torch.Tensor],
    window: int,
    cap: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, sink, *ctx.numbers = inputs
    ctx.save_for_backward(query, key, value, sink, *output)


def _gradients(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    query, key, value, sink, y, sums = ctx.saved_tensors
    of_sink = None
    if sink is not None and ctx.needs_input_grad[3]:
        share = (sink.to(sums.dtype)[:, None] - sums).exp()
        of_sink = -(share * (_wide(gradient) * y).sum(-1)).sum((0, 2)).to(sink.dtype)
    found = attention_backward(gradient.contiguous(), query, key, value, [y, sums], *ctx.numbers)
    return (*found, of_sink, None, None, None)


attention.register_autograd(_gradients, setup_context=_keep)


def local_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sink: torch.Tensor | None = None,
    *,
    window: int = 0,
    cap: float = 0.0,
    scale: float = 0.0,
) -> torch.Tensor:
    """Attention of [sample, head, sequence, head_dim] to the `window` places up to its own (0: all)."""
    return attention(query, key, value, sink, window, cap, scale or query.shape[-1] ** -0.5)[0]
