# pyright: basic
"""Tensor parallelism: columns of layers first, rows second, and with `sp` shares of the sequence between them.

Which layers are cut which way follows from the types of modules. Weights are plain tensors, this rank's shares, and
layers talk by plain collectives: whatever replicates or shards weights, and every version of torch, meets nothing that
it does not know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from foretell.model import zoo
from foretell.model.zoo.bert import Bert
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture
from foretell.model.zoo.vit import Vit
from foretell.modules import _encoder as encoder
from foretell.modules._decoder import GatedFeedForward
from foretell.modules._experts import ExpertFeedForward
from foretell.modules._normalization import RMSNorm
from foretell.modules.gpt import FusedAttention, GptFeedForward
from foretell.modules.llama import GroupedQueryAttention
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.tensor import Tensor
from foretell.runtime.appliers import _sharing
from foretell.runtime.appliers._experts import Columns
from foretell.runtime.appliers._sharing import Collected, Copied, Gathered, OwnShare, Scattered, Summed
from foretell.runtime.appliers._tied import tied
from foretell.runtime.appliers._whole import undivided
from foretell.runtime.appliers.lora import is_adapted
from foretell.runtime.subject import Subject

ORDER = 20

SEQUENCE = 1
"""The dim of activations [sample, sequence, hidden] that is shared out with `sp`."""

COLUMNS = {"weight": 0, "bias": 0, "lora_b.weight": 0}
ROWS = {"weight": 1, "lora_a.weight": 1}
"""The dims along which a dense layer's weights are cut, by its outputs or by its inputs; others are whole."""

TABLES, HEADS = ("embedding", "token"), ("head", "token_head.decoder")
"""Names of token tables, which are cut by tokens, and of layers with an output for each class or token."""

EXPERTS = {
    "gate": {"weight": 2, "lora_b.weight": 2},
    "up": {"weight": 2, "lora_b.weight": 2},
    "down": {"weight": 1, "lora_a.weight": 1},
}
"""The same of the layers of experts, which lie [expert, in, out]."""

HEAD_NORMS = ("query_norm", "key_norm")
"""Norms of [sample, sequence, head, head_dim]: every rank norms its own heads."""


def refusals(part: Tensor, setting: Setting) -> Iterator[tuple[str, str]]:
    """Read from the name of the model: its module is not there yet."""
    name = setting.graph.name
    fields: Any = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
    if not isinstance(fields, Llama | Gpt | Mixture | Bert | Vit):
        known = "llama, mixture, gpt, bert and vit"
        yield f"tp{part.ranks}: of all modules, {known} ones run in shares today", "dp, pp, or these"
        return
    if part.sequence and isinstance(fields, Bert | Vit):
        yield f"tp{part.ranks}:sp: sequences of encoders do not run in shares yet", f"tp{part.ranks}"
    if getattr(fields, "objective", "") == "pretraining":
        yield f"tp{part.ranks}: the head for the next sentence does not run in shares yet", "objective=mlm"
    if getattr(fields, "positions", "") == "alibi":
        yield f"tp{part.ranks}: a bias on the scores does not run in shares yet", f"{name} with other positions"
    if whole := undivided(fields):
        yield f"tp{part.ranks}: {whole} not run in shares yet", "dp, or pp"
    if getattr(fields, "wide_norm", False):
        yield f"tp{part.ranks}: a norm over all heads does not run in shares yet", "dp, or pp"
    if getattr(fields, "expert_bias", False):
        yield f"tp{part.ranks}: experts with biases and sinks of heads do not run in shares yet", "dp, or pp"
    window, sequence = getattr(fields, "window", 0), getattr(fields, "seq", 0)
    if part.sequence and 0 < window < sequence:
        why = f"tp{part.ranks}:sp: a window of {window} in a sequence of {sequence} does not run in shares yet"
        yield why, f"tp{part.ranks}, or window=0"


def apply(part: Tensor, subject: Subject) -> None:
    data = subject.setting.plan.axis(Data)
    at_once = data is not None and data.storage in ("zero2", "zero3")  # FSDP2 takes gradients as soon as they are made
    cut = _Cut(subject.mesh.group("tp"), part.sequence, _experts(data), even=subject.rehearsed)
    together = nn.ModuleList(subject.parts)  # two stages of a rank may share a weight
    shared = tied(together)
    for own in subject.parts:
        for name, module in list(own.named_modules()):
            cut.module(name, module)
    _tie(together, shared)
    if at_once:
        cut.sum_on_the_way_back()
    else:
        subject.settles.append(functools.partial(_sum, cut))
    subject.wholes.append(cut.whole)


def _experts(data: Data | None) -> str:
    """What tensor ranks have of experts: some columns of each, whole ones, or some of them, which `dp` divides."""
    if data is None or data.expert_tensor != 1:
        return "columns"
    return "some" if data.experts > (data.shard or data.ranks) else "whole"


@dataclass
class _Cut:
    """The layers of one rank. Shares are named with the dim they lie along, and the whole's size there."""

    group: dist.ProcessGroup
    sequence: bool
    experts: str
    even: bool = False  # whether rows of experts are taken to be as many everywhere: nobody is there to say
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    orders: dict[str, torch.Tensor] = field(default_factory=dict)
    summands: list[tuple[nn.Module, str]] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        return dist.get_world_size(self.group)

    # which layers are cut which way

    def module(self, name: str, module: Any) -> None:
        if isinstance(module, GroupedQueryAttention | encoder.MultiHeadAttention):
            self._pair(name, module, ("query", "key", "value"), "output")
        elif isinstance(module, FusedAttention):
            self._reorder(name, module)
            self._pair(name, module, ("qkv",), "output")
        elif isinstance(module, GptFeedForward | encoder.FeedForward):
            self._pair(name, module, ("up",), "down")
        elif isinstance(module, GatedFeedForward):
            self._pair(name, module, ("gate", "up"), "down")
        elif isinstance(module, ExpertFeedForward):
            self._experts(name, module)
        elif isinstance(module, RMSNorm | nn.LayerNorm) and (self.sequence or name.endswith(HEAD_NORMS)):
            self._summands(module)  # every rank saw tokens, or heads, of its own
        elif name in TABLES:
            self._table(name, module)
        elif name == "position" and self.sequence:  # every rank looks all places up and goes on with its share of them
            _after(module, lambda y: OwnShare.apply(y, 0, self.group))
        elif name in HEADS:
            self._head(name, module)

    def _pair(self, name: str, module: nn.Module, into: tuple[str, ...], out: str) -> None:
        """Columns of the first products, rows of the last."""
        if self.sequence:
            adapted = any(is_adapted(module.get_submodule(part)) for part in into)
            _before(module, self._collected if adapted else self._entered)
        for part in into:
            self._columns(f"{name}.{part}", module.get_submodule(part))
        self._rows(f"{name}.{out}", module.get_submodule(out))

    def _collected(self, x: torch.Tensor) -> torch.Tensor:
        """All places, once for all layers that read them; adapters go on with the share."""
        whole: Any = self._entered(x)
        whole._foretell_share = x
        return whole

    def _entered(self, x: torch.Tensor) -> torch.Tensor:
        return Collected.apply(x, SEQUENCE, self.group) if self.sequence else Copied.apply(x, self.group)

    def _left(self, x: torch.Tensor) -> torch.Tensor:
        return Scattered.apply(x, SEQUENCE, self.group) if self.sequence else Summed.apply(x, self.group)

    def _columns(self, name: str, module: Any) -> None:
        """Some outputs. What an adapter's first matrix makes enters as the layer's input does, and is thin."""
        self._keep(name, module, COLUMNS)
        adapter = is_adapted(module)
        if adapter and self.sequence:
            self._summands(module.lora_a)

        def forward(x: torch.Tensor) -> torch.Tensor:
            y = F.linear(x if self.sequence else self._entered(x), module.weight, module.bias)
            if not adapter:
                return y
            thin = module.lora_a(getattr(x, "_foretell_share", x))
            return y + module.lora_b(self._entered(thin))

        module.forward = forward

    def _rows(self, name: str, module: Any) -> None:
        """Some inputs. The bias is a summand of the first rank; all see the gradient of the whole output, so all make
        its own. What an adapter's first matrix makes is summed as the layer's output is."""
        self._keep(name, module, ROWS)
        first, adapter = dist.get_rank(self.group) == 0, is_adapted(module)
        if adapter and self.sequence:
            self._summands(module.lora_b)

        def forward(x: torch.Tensor) -> torch.Tensor:
            bias = module.bias
            y = self._left(F.linear(x, module.weight, bias if bias is None else _Added.apply(bias, first)))
            return y + module.lora_b(self._left(module.lora_a(x))) if adapter else y

        module.forward = forward

    def _table(self, name: str, module: Any) -> None:
        """Some rows of the token table; other tokens are looked up by other ranks."""
        size = module.weight.shape[0]
        first = dist.get_rank(self.group) * -(-size // self.ranks)
        self._keep(name, module, COLUMNS)

        def forward(tokens: torch.Tensor) -> torch.Tensor:
            here = tokens - first
            elsewhere = (here < 0) | (here >= module.weight.shape[0])
            found = F.embedding(here.masked_fill(elsewhere, 0), module.weight)
            return self._left(found.masked_fill(elsewhere[..., None], 0))

        module.forward = forward

    def _head(self, name: str, module: Any) -> None:
        classes = module.weight.shape[0]
        self._keep(name, module, COLUMNS)
        _before(module, self._entered)
        _after(module, lambda y: Gathered.apply(y, -1, self.group, classes))

    def _experts(self, name: str, module: ExpertFeedForward) -> None:
        if self.sequence:
            self._summands(module.router)
            if module.shared_gate is not None:
                self._summands(module.shared_gate)
        for part, dims in EXPERTS.items():
            inner = module.experts.get_submodule(part)
            if self.experts == "whole":  # every rank saw tokens of its own
                for own in inner.modules():
                    self._summands(own)
            elif self.experts == "columns":
                self._keep(f"{name}.experts.{part}", inner, dims)
                if self.sequence and is_adapted(inner):
                    self._summands(inner.get_submodule("lora_b" if part == "down" else "lora_a"))
        if self.experts == "columns":
            own: Any = module.experts  # without biases: those are refused
            own.forward = Columns(module.experts, self.group, self.sequence, self.even)

    # weights

    def _keep(self, name: str, module: Any, dims: Mapping[str, int]) -> None:
        """Leave this rank's shares of a layer's weights; those that are frozen stay so."""
        for weight, whole in list(module.named_parameters()):
            if weight in dims:
                dim = dims[weight]
                self.shares[f"{name}.{weight}"] = (dim, whole.shape[dim])
                share = _sharing.own(whole.detach(), dim, self.group).clone()
                path, _, last = weight.rpartition(".")
                setattr(module.get_submodule(path), last, nn.Parameter(share, requires_grad=whole.requires_grad))

    def _summands(self, module: nn.Module) -> None:
        """The gradients of weights that all ranks have, each its own: they are to be summed."""
        self.summands += [(module, name) for name, _ in module.named_parameters(recurse=False)]

    def sum_on_the_way_back(self) -> None:
        for module in dict.fromkeys(module for module, _ in self.summands):
            names = [name for one, name in self.summands if one is module]
            module.forward = _Summing(module, names, self.group)

    def _reorder(self, name: str, module: FusedAttention) -> None:
        """Put the rows of a product that makes queries, keys and values at once in such an order that a share is some
        heads. The order is kept for those who put the shares together again."""
        starts = [0, module.heads[0], module.heads[0] + module.heads[1]]
        rows = torch.arange(sum(module.heads) * module.head_dim).view(-1, module.head_dim)
        parts = [rows[start : start + count] for start, count in zip(starts, module.heads, strict=True)]
        shares = (part.chunk(self.ranks)[rank] for rank in range(self.ranks) for part in parts)
        order = torch.cat(list(shares)).flatten()
        query, key, value = (count // self.ranks for count in module.heads)
        module.heads = (query, key, value)
        for weight, whole in module.qkv.named_parameters():
            if weight in COLUMNS:
                whole.data = whole.data[order.to(whole.device)]
                self.orders[f"{name}.qkv.{weight}"] = order

    def whole(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        """What was cut, gathered."""
        if name in self.shares:
            dim, size = self.shares[name]
            share = _sharing.gathered(share, dim, self.group, size)
        if name in self.orders:
            share = torch.empty_like(share).index_copy_(0, self.orders[name].to(share.device), share)
        return name, share


class _Added(torch.autograd.Function):
    """A weight that one rank adds and all have the gradient of."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, here: bool) -> torch.Tensor:
        return weight.view_as(weight) if here else torch.zeros_like(weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _before(module: nn.Module, change: Any) -> None:
    """Change what a module reads first."""
    inner = module.forward
    module.forward = lambda x, *others: inner(change(x), *others)


def _after(module: nn.Module, change: Any) -> None:
    inner = module.forward
    module.forward = lambda *inputs: change(inner(*inputs))


def _tie(own: nn.Module, shared: list[list[str]]) -> None:
    """One weight again where there was one: a table and a head are cut alike, by rows."""
    for first, *others in shared:
        for other in others:
            path, _, name = other.rpartition(".")
            setattr(own.get_submodule(path), name, own.get_parameter(first))


class _Summing:
    """The forward of a module whose weights' gradients are summed over ranks as soon as they are made."""

    def __init__(self, module: nn.Module, names: list[str], group: dist.ProcessGroup) -> None:
        self.module, self.names, self.group, self.inner = module, names, group, module.forward

    def __call__(self, *inputs: Any) -> Any:
        weights: dict[str, Any] = self.module._parameters
        kept = {name: weights[name] for name in self.names}
        weights.update({name: Copied.apply(weight, self.group) for name, weight in kept.items()})
        try:
            return self.inner(*inputs)
        finally:
            weights.update(kept)


def _sum(cut: _Cut) -> None:
    """Sum the gradients at the end of a step that are summands."""
    for module, name in cut.summands:
        gradient = getattr(module, name).grad
        if gradient is not None:
            dist.all_reduce(gradient, group=cut.group)
