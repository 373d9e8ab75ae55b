# pyright: basic
"""Tensor parallelism with DTensor: columns first, rows second, and with `sp` shares of the sequence between them.

Which layers are cut which way follows from the types of modules. A weight stays a plain tensor, this rank's
share; it is a DTensor where a layer reads it (a parametrization), so that whatever replicates or shards weights
meets nothing it does not know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.utils import parametrize

from foretell.model import zoo
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.modules._decoder import GatedFeedForward
from foretell.modules._normalization import RMSNorm
from foretell.modules.gpt import FeedForward, FusedAttention
from foretell.modules.llama import GroupedQueryAttention
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.tensor import Tensor
from foretell.runtime.appliers._tied import tied
from foretell.runtime.subject import Subject

ORDER = 20

Styles = Mapping[str, ParallelStyle]
SEQUENCE = 1
"""The dim of activations [sample, sequence, hidden] that is shared out with `sp`."""


def refusals(part: Tensor, setting: Setting) -> Iterator[tuple[str, str]]:
    """Read from the name of the model: its module is not there yet."""
    name = setting.graph.name
    fields = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
    if not isinstance(fields, Llama | Gpt):
        yield f"tp{part.ranks}: of all modules, llama and gpt ones run in shares today", "dp, pp, or one of these"
    elif isinstance(fields, Gpt) and fields.positions == "alibi":
        yield f"tp{part.ranks}: a bias on the scores does not run in shares yet", f"{name} with other positions"
    if fields is not None and getattr(fields, "tied", False) and setting.plan.axis("pp") is not None:
        yield f"tp{part.ranks} beside pp: a token table that is the head too is not split yet", "tied=false"


def apply(part: Tensor, subject: Subject) -> None:
    mesh = subject.mesh.along("tp")
    data = subject.setting.plan.axis(Data)
    at_once = data is not None and data.storage in ("zero2", "zero3")  # FSDP2 takes gradients as soon as they are made
    orders: dict[str, torch.Tensor] = {}
    for own in subject.parts:
        shared = tied(own)
        orders |= _reordered(own, part.ranks)
        parallelize_module(own, mesh, dict(_styles(own, part.sequence)))
        for module in list(own.modules()):
            _plain_weights(module, at_once)
        _tie(own, shared)
    if not at_once:
        subject.settles.append(functools.partial(_sum, list(subject.parts), subject.mesh.group("tp")))
    subject.wholes.append(_Wholes(subject.parts, orders))


# which layers are cut which way


def _styles(own: nn.Module, sequence: bool) -> Iterator[tuple[str, ParallelStyle]]:
    between = Shard(SEQUENCE) if sequence else Replicate()
    for name, module in own.named_modules():
        if isinstance(module, GroupedQueryAttention):
            inner = {part: ColwiseParallel() for part in ("query", "key", "value")}
            inner |= {"output": RowwiseParallel(output_layouts=between), **_head_norms(module)}
            yield from _placed(name, inner, between if sequence else None, arguments=3)
        elif isinstance(module, FusedAttention):
            inner = {"qkv": ColwiseParallel(), "output": RowwiseParallel(output_layouts=between)}
            yield from _placed(name, inner, between if sequence else None, arguments=3)
        elif isinstance(module, FeedForward):
            inner = {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=between)}
            yield from _placed(name, inner, between if sequence else None, arguments=1)
        elif isinstance(module, GatedFeedForward):
            inner = {part: ColwiseParallel() for part in ("gate", "up")}
            inner |= {"down": RowwiseParallel(output_layouts=between)}
            yield from _placed(name, inner, between if sequence else None, arguments=1)
        elif isinstance(module, RMSNorm | nn.LayerNorm) and sequence and not name.endswith(("query_norm", "key_norm")):
            yield name, SequenceParallel(sequence_dim=SEQUENCE)
        elif name == "position" and sequence:  # every rank looks all places up and goes on with its share of them
            yield name, PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
        elif name == "embedding":
            yield name, RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        elif name == "head":
            yield name, ColwiseParallel(input_layouts=between, output_layouts=Replicate())


def _head_norms(attention: GroupedQueryAttention) -> Styles:
    """Norms of [sample, sequence, head, head_dim]: every rank norms its own heads."""
    names = ("query_norm", "key_norm")
    found = [name for name in names if isinstance(attention.get_submodule(name), RMSNorm)]
    return {name: SequenceParallel(sequence_dim=2, use_local_output=True) for name in found}


def _placed(name: str, inner: Styles, shares: Placement | None, arguments: int) -> Iterator[tuple[str, ParallelStyle]]:
    """The styles inside a module; where its input comes in shares, that it is gathered once for all of them."""
    yield from ((f"{name}.{part}", style) for part, style in inner.items())
    if shares is not None:
        rest = [None] * (arguments - 1)
        yield name, PrepareModuleInput(input_layouts=(shares, *rest), desired_input_layouts=(Replicate(), *rest))


# heads


def _reordered(own: nn.Module, ranks: int) -> dict[str, torch.Tensor]:
    """Put the rows of products that make queries, keys and values at once in such an order that a share is some heads.

    The order of each such weight is returned, for those who put the shares together again.
    """
    found: dict[str, torch.Tensor] = {}
    for path, module in own.named_modules():
        if isinstance(module, FusedAttention):
            starts = [0, module.heads[0], module.heads[0] + module.heads[1]]
            rows = torch.arange(sum(module.heads) * module.head_dim).view(-1, module.head_dim)
            parts = [rows[start : start + count] for start, count in zip(starts, module.heads, strict=True)]
            shares = (part.chunk(ranks)[rank] for rank in range(ranks) for part in parts)
            order = torch.cat(list(shares)).flatten()
            query, key, value = (count // ranks for count in module.heads)
            module.heads = (query, key, value)
            for name, weight in module.qkv.named_parameters():
                weight.data = weight.data[order.to(weight.device)]
                found[f"{path}.qkv.{name}"] = order
    return found


# weights


def _tie(own: nn.Module, shared: list[list[str]]) -> None:
    """One weight again where there was one: torch splits each use of it, a table and a head alike by rows."""
    for first, *others in shared:
        owner: Any = own.get_submodule(first.rpartition(".")[0])
        for other in others:
            user: Any = own.get_submodule(other.rpartition(".")[0])
            user.parametrizations.weight.original = owner.parametrizations.weight.original


class _AsShare(nn.Module):
    """This rank's share of a weight, seen as the whole one.

    Where ranks saw different tokens their gradients of a weight that all of them have are summands. They are
    summed on the way back, `at_once`, or left for the end of the step.
    """

    def __init__(self, weight: DTensor, at_once: bool) -> None:
        super().__init__()
        self.mesh: DeviceMesh = weight.device_mesh
        self.placements = weight.placements
        self.shape, self.stride = weight.shape, weight.stride()
        self.later = not at_once and weight.placements == (Replicate(),)
        self.summand = False  # whether its gradient was one

    def forward(self, share: torch.Tensor) -> torch.Tensor:
        return _Unsummed.apply(share, self) if self.later else self.whole(share)

    def whole(self, share: torch.Tensor) -> DTensor:
        return DTensor.from_local(
            share, self.mesh, self.placements, run_check=False, shape=self.shape, stride=self.stride
        )


class _Unsummed(torch.autograd.Function):
    """A weight whose gradient stays this rank's summand."""

    @staticmethod
    def forward(ctx: Any, share: torch.Tensor, seen: _AsShare) -> DTensor:
        ctx.seen = seen
        return seen.whole(share.detach())

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[torch.Tensor, None]:
        ctx.seen.summand = gradient.placements[0].is_partial()
        return gradient.to_local(), None


def _plain_weights(module: nn.Module, at_once: bool) -> None:
    for name, weight in list(module.named_parameters(recurse=False)):
        if isinstance(weight, DTensor):
            seen = _AsShare(weight, at_once)
            setattr(module, name, nn.Parameter(weight.to_local().detach().clone()))
            parametrize.register_parametrization(module, name, seen, unsafe=True)


def _sum(parts: list[nn.Module], group: dist.ProcessGroup) -> None:
    """Sum the gradients at the end of a step that are summands."""
    for own in parts:
        for seen in own.modules():
            if isinstance(seen, parametrize.ParametrizationList) and seen[0].summand:
                dist.all_reduce(seen.original.grad, group=group)


class _Wholes:
    """Gathers what was cut."""

    def __init__(self, parts: list[nn.Module], orders: dict[str, torch.Tensor]) -> None:
        self.orders = orders
        self.shares: dict[str, Any] = {
            f"{path}.original": seen[0]
            for part in parts
            for path, seen in part.named_modules()
            if isinstance(seen, parametrize.ParametrizationList) and isinstance(seen[0], _AsShare)
        }

    def __call__(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        if name not in self.shares:
            return name, share
        whole = self.shares[name].whole(share).full_tensor()
        name = name.replace(".parametrizations.", ".").removesuffix(".original")
        if name in self.orders:
            whole = torch.empty_like(whole).index_copy_(0, self.orders[name].to(whole.device), whole)
        return name, whole
