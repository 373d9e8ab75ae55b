# pyright: basic
"""Layers that are cut by their weights in a model whose other layers are cut by samples (Krizhevsky 2014).

Where such layers begin, every rank gets the samples of all; where they end, it goes on with its own. Each rank has a
loss of its own, the mean of its samples, and gradients of what it has alone are averaged over ranks, as under data
parallelism. Layers that see all samples need the gradient of the mean of all losses: what comes back to them is
divided by the ranks, and what they give back is multiplied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from foretell.model.graph import Graph, Node
from foretell.model.resize import SAMPLE
from foretell.plan.placement import Replicated, Sharded
from foretell.plan.plan import axis_text
from foretell.plan.policies.lora import Lora
from foretell.plan.setting import Setting
from foretell.plan.strategies._weight_split import WeightSplit
from foretell.program.aliases import alias_source
from foretell.program.lower import lower
from foretell.program.sharding.ahead import WEIGHTED
from foretell.program.sharding.propagate import Sharding
from foretell.runtime.appliers._sharing import gathered, own, scattered, swapped
from foretell.runtime.subject import Subject, cut
from foretell.runtime.tasks import Batch

ALONE = ("pp", "spatial", "cp")
"""Strategies that cut samples or models otherwise, and do not know of such borders yet."""


class Borders(NamedTuple):
    """Where samples change hands, by paths of operators.

    enters   layers that are cut by their weights and read shares of samples
    leaves   operators whose outputs every rank has whole, and goes on with its own samples of
    shared   operators that work on shares of samples
    strange  an operator at a border where nothing can be put: no layer by itself, or read on both sides
    """

    enters: frozenset[str]
    leaves: frozenset[str]
    shared: frozenset[str]
    strange: str = ""


def borders(setting: Setting, axis: str) -> Borders:
    """Where the program has samples change hands along an axis."""
    layout = lower(setting).layout
    (spread,) = (one for one in layout.spreads if one.axis.name == axis)
    graph = layout.graph
    nodes = [(at, index, node) for at, block in enumerate(graph.blocks) for index, node in enumerate(block.nodes)]
    by_weights = {(at, index) for at, index, node in nodes if _is_cut(spread, at, index, node)}
    enters = {
        node.path for at, index, node in nodes if (at, index) in by_weights and _reads_samples(graph, spread, at, node)
    }
    shared = {node.path for at, index, node in nodes if (at, index) not in by_weights and spread.places[at, index]}
    left = {
        alias_source(graph, change.block, change.tensor)
        for change in spread.changes
        if change.phase == "forward" and not change.after and (change.block, change.node) not in by_weights
        if isinstance(change.source, Replicated) and isinstance(change.target, Sharded)
    }
    makers = {(at, number): node.path for at, _, node in nodes for number in node.outputs}
    leaves = {makers[home] for home in left if home in makers}
    paths = [node.path for _, _, node in nodes]
    strange = [path for path in leaves if paths.count(path) > 1 or any(one.startswith(f"{path}.") for one in paths)]
    for at, index, node in nodes:
        both = any(alias_source(graph, at, operand.tensor) in left for operand in node.inputs)
        if both and ((at, index) in by_weights or not spread.places[at, index]):
            strange.append(node.path)
        if graph.blocks[at].times > 1 and node.path in enters | leaves:
            strange.append(node.path)
    return Borders(frozenset(enters), frozenset(leaves), frozenset(shared), min(strange, default=""))


def _is_cut(spread: Sharding, at: int, index: int, node: Node) -> bool:
    return isinstance(node.operator, WEIGHTED) and any(
        place.loop in ("in", "out") for place in spread.places[at, index]
    )


def _reads_samples(graph: Graph, spread: Sharding, at: int, node: Node) -> bool:
    home = alias_source(graph, at, node.inputs[0].tensor)
    where, dims = spread.placed[home], graph.blocks[home[0]].tensors[home[1]].dims
    return isinstance(where, Sharded) and dims[where.dim].name == SAMPLE


def refusals(part: WeightSplit, setting: Setting) -> Iterator[tuple[str, str]]:
    """What is not written yet of parts beside which samples are shared out."""
    said, whole = axis_text(part), "the part without :data"
    beside = [axis.word for axis in setting.plan.axes if axis.word in ALONE and axis.world > 1]
    if beside:
        yield f"{said} beside {beside[0]} does not run yet", f"dp beside it, or {whole}"
    elif setting.plan.policy(Lora).rank:
        yield f"{said} beside adapters does not run yet", whole
    elif strange := borders(setting, part.word).strange:
        yield f"{said}: samples would change hands at {strange}, which is no layer by itself", whole


def share_samples(part: WeightSplit, subject: Subject, group: dist.ProcessGroup) -> None:
    """Other samples on each rank: where layers with shares of weights end, and from the batch on."""
    found = borders(subject.setting, part.word)
    subject.shares.append(functools.partial(_own_samples, subject, part.word))
    subject.sample = cut(subject.sample, 0, part.ranks)
    for part_of_model in subject.parts:
        for name, module in part_of_model.named_modules():
            if name in found.shared:
                subject.summands |= dict.fromkeys(module.parameters(recurse=False), (part.word,))
            if name in found.leaves:
                _leave(module, group)


def _own_samples(subject: Subject, name: str, batch: Batch) -> Batch:
    return cut(batch, subject.mesh.place(name), subject.mesh.ranks(name))


def _leave(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Let a module that makes something of all samples give this rank's."""
    inner: Any = module.forward

    def forward(*given: Any) -> torch.Tensor:
        return OwnSamples.apply(inner(*given), group)

    module.forward = forward


def entered(x: Any, group: dist.ProcessGroup, dim: int | None = None) -> torch.Tensor:
    """All samples of this rank's, or of its share of their features; layers that read the same tensor share them."""
    known = getattr(x, "_foretell_entered", None)
    if known is None:
        known = AllSamples.apply(x, group) if dim is None else AllOfFeatures.apply(x, dim, group)
        x._foretell_entered = known
    return known


class AllSamples(torch.autograd.Function):
    """Everybody's samples; ranks make different things of them, and each gets the sum of the gradients of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return gathered(x, 0, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return scattered(gradient, 0, ctx.group) * dist.get_world_size(ctx.group), None


class AllOfFeatures(torch.autograd.Function):
    """This rank's features of everybody's samples, for all features of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return swapped(x, dim, 0, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return swapped(gradient, 0, ctx.dim, ctx.group) * dist.get_world_size(ctx.group), None, None


class OwnSamples(torch.autograd.Function):
    """This rank's samples of what every rank has of all."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return own(x, 0, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gathered(gradient, 0, ctx.group) / dist.get_world_size(ctx.group), None
