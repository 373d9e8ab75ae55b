# pyright: basic
"""Causal attention of ranks that have some places of every sequence each, one share behind the other.

Either keys and values go round, and what each rank has seen of them is merged by the logarithms of its sums (Liu et al.
2023), or ranks swap places for heads and every rank attends with some heads to all places (Jacobs et al. 2023).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from foretell.modules._decoder import Kernel, attended
from foretell.runtime import waiting
from foretell.runtime.appliers._sharing import Swapped

HEAD, PLACE = 1, 2
"""Dims of [sample, head, place, head_dim]."""


class RingAttention(NamedTuple):
    """A kernel: keys and values go round."""

    group: dist.ProcessGroup

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> torch.Tensor:
        return _Round.apply(query, key, value, self.group)


class ByHeads(NamedTuple):
    """A kernel: all places of some heads."""

    group: dist.ProcessGroup
    inside: Kernel = functools.partial(attended, "flash")

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *more: Any) -> torch.Tensor:
        query, key, value = (Swapped.apply(part, HEAD, PLACE, self.group) for part in (query, key, value))
        return Swapped.apply(self.inside(query, key, value, *more), PLACE, HEAD, self.group)


class _Round(torch.autograd.Function):
    """Attention to this rank's own places first, then to those of the rank before, and so on.

    Shares that lie behind this rank's are passed on unseen. Backward, keys and values go round once more, and their
    gradients with them, home at last.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: dist.ProcessGroup
    ) -> torch.Tensor:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        there = _KeysSeen(key, value)
        attention = _FUSED.get(query.device.type, _Plain)() if _fuses(query, there) else _Plain()
        y, logs = attention.attended(query, there, own=True)
        for turn in range(1, ranks):
            there = _KeysSeen(*_passed_on(there, group))
            if turn <= rank:
                y, logs = _merged(y, logs, *attention.attended(query, there, own=False))
        y = y.to(query.dtype)
        ctx.save_for_backward(query, key, value, y, logs)
        ctx.group, ctx.attention = group, attention
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, y, logs = ctx.saved_tensors
        group = ctx.group
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        there = _KeysSeen(key, value)
        of_query = torch.zeros_like(query)
        of_there = _KeysSeen(torch.zeros_like(key), torch.zeros_like(value))
        for turn in range(ranks):
            if turn <= rank:
                found = ctx.attention.gradients(query, there, gradient, y, logs, own=turn == 0)
                of_query += found[0]
                of_there = _KeysSeen(of_there.key + found[1], of_there.value + found[2])
            of_there = _KeysSeen(*_passed_on(of_there, group))
            if turn + 1 < ranks:
                there = _KeysSeen(*_passed_on(there, group))
        return of_query, of_there.key, of_there.value, None


class _KeysSeen(NamedTuple):
    """Keys and values of some rank's places, or their gradients."""

    key: torch.Tensor
    value: torch.Tensor


class _Plain:
    """Attention to some places by products of its own: all scores are there at once."""

    def attended(self, query: torch.Tensor, there: _KeysSeen, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """What it makes, and the logarithm of the sum that it was divided by."""
        scores = _scores(query, there.key, own)
        logs = scores.logsumexp(-1, keepdim=True)
        return (scores - logs).exp() @ _repeated(there.value, query).to(scores.dtype), logs

    def gradients(
        self,
        query: torch.Tensor,
        there: _KeysSeen,
        gradient: torch.Tensor,
        y: torch.Tensor,
        logs: torch.Tensor,
        own: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of queries, keys and values, by what attention to these places adds to them. `y`: what attention to all
        places made, and `logs` of all of them."""
        along = (gradient * y).sum(-1, keepdim=True)
        shares = (_scores(query, there.key, own) - logs).exp()
        wide = gradient.to(shares.dtype)
        of_scores = shares * (wide @ _repeated(there.value, query).to(shares.dtype).transpose(-1, -2) - along)
        of_scores *= query.shape[-1] ** -0.5
        of_query = of_scores @ _repeated(there.key, query).to(shares.dtype)
        of_key = of_scores.transpose(-1, -2) @ query.to(shares.dtype)
        of_value = shares.transpose(-1, -2) @ wide
        return (
            of_query.to(query.dtype),
            _grouped(of_key, there.key).to(query.dtype),
            _grouped(of_value, there.value).to(query.dtype),
        )


class _Fused:
    """The same by torch's kernels, which keep no scores: each share of the places by itself (as torch's own ring does,
    torch/distributed/tensor/experimental/_attention.py). This one is a processor's."""

    def attended(self, query: torch.Tensor, there: _KeysSeen, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
        y, logs = self._forward(query, _repeated(there.key, query), _repeated(there.value, query), own)
        return y.to(torch.promote_types(y.dtype, torch.float32)), logs.unsqueeze(-1)

    def gradients(
        self,
        query: torch.Tensor,
        there: _KeysSeen,
        gradient: torch.Tensor,
        y: torch.Tensor,
        logs: torch.Tensor,
        own: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        key, value = _repeated(there.key, query), _repeated(there.value, query)
        of_query, *found = self._backward(gradient, query, key, value, y, logs.squeeze(-1), own)
        of_key, of_value = (_grouped(one, there.key) for one in found)
        return of_query, of_key, of_value

    def _forward(self, *given: Any) -> Any:
        *tensors, own = given
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*tensors, 0.0, own)

    def _backward(self, *given: Any) -> Any:
        *tensors, own = given
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*tensors, 0.0, own)


class _FusedOnGpu(_Fused):
    """FlashAttention-2, which says how it was asked, and wants to be told so again."""

    def _forward(self, *given: Any) -> Any:
        *tensors, own = given
        y, logs, *self.asked, _ = torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.0, own)
        return y, logs

    def _backward(self, *given: Any) -> Any:
        *tensors, own = given
        *lengths, seed, offset = self.asked
        backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
        return backward(*tensors, *lengths, 0.0, own, seed, offset)


_FUSED: dict[str, type[_Plain | _Fused]] = {"cpu": _Fused, "cuda": _FusedOnGpu}


def _fuses(query: torch.Tensor, there: _KeysSeen) -> bool:
    """Whether those kernels take them: a GPU's has 16 bits, and heads of up to 256 in eights."""
    width = query.shape[-1]
    fits = query.device.type == "cpu" or (query.element_size() == 2 and width % 8 == 0 and width <= 256)
    return fits and there.value.shape[-1] == width


def _scores(query: torch.Tensor, key: torch.Tensor, own: bool) -> torch.Tensor:
    """Of queries with keys of other places, all earlier ones, or of their own: later ones are not seen."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query.to(wide) @ _repeated(key, query).to(wide).transpose(-1, -2)) * query.shape[-1] ** -0.5
    if own:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores


def _merged(
    y: torch.Tensor, logs: torch.Tensor, other: torch.Tensor, others: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.logaddexp(logs, others)
    return y * (logs - both).exp() + other * (others - both).exp(), both


def _repeated(shared: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """A key or value head for every query head."""
    groups = query.shape[HEAD] // shared.shape[HEAD]
    return shared.repeat_interleave(groups, HEAD) if groups > 1 else shared


def _grouped(of_heads: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """The gradient of heads that were repeated."""
    return of_heads.unflatten(HEAD, (shared.shape[HEAD], -1)).sum(HEAD + 1)


@waiting.speaks
def _passed_on(tensors: _KeysSeen, group: dist.ProcessGroup) -> list[torch.Tensor]:
    """To the next rank, each; what the rank before has instead."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    found = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in tensors]
    messages: list[dist.P2POp] = []
    for tag, (one, other) in enumerate(zip(tensors, found, strict=True)):
        # Ready first: with gloo that word would wait behind what is sent.
        messages.append(dist.P2POp(dist.irecv, other, group=group, tag=tag, group_peer=(rank - 1) % ranks))
        messages.append(dist.P2POp(dist.isend, one.contiguous(), group=group, tag=tag, group_peer=(rank + 1) % ranks))
    with waiting.along(group):
        for work in dist.batch_isend_irecv(messages):
            work.wait()
    return found
