# pyright: basic
"""Spatial parallelism: every rank has a part of each image, and its neighbours' rows where windows overlap.

The model goes on with shares as far as it can (`_in_shares`). Ranks then go on alike, as if each had a loss of its
own: gradients that flow back into shares count for all of them, and weights that saw shares are averaged.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from foretell.model.graph import Graph
from foretell.model.layers import layers
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.pooling import Pool
from foretell.plan.parts import members
from foretell.plan.plan import axis_text
from foretell.plan.setting import Setting
from foretell.plan.strategies.spatial import Spatial
from foretell.runtime.appliers._cuts import Cuts
from foretell.runtime.appliers._halo import DIM
from foretell.runtime.appliers._in_shares import Rewriting, RewrittenPart
from foretell.runtime.appliers._replicas import joined
from foretell.runtime.division import of_repetition
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch

ORDER = 9

ALONE = ("tp", "cp")
"""Strategies that have no module in common with it."""


def refusals(part: Spatial, setting: Setting) -> Iterator[tuple[str, str]]:
    said = axis_text(part)
    beside = [axis.word for axis in setting.plan.axes if axis.word in ALONE and axis.world > 1]
    if beside:
        why = (
            f"{said} beside {beside[0]} does not run: {beside[0]} is for transformers, and their sequences have no rows"
        )
        yield why, f"dp, pp, filter or channel beside spatial{part.ranks}"
    yield from _empty(part, setting.graph)


def _empty(part: Spatial, graph: Graph) -> Iterator[tuple[str, str]]:
    """A layer that makes fewer rows than there are ranks to share them."""
    inside = members(graph, part.only)
    for at, block in enumerate(graph.blocks):
        for index, node in enumerate(block.nodes):
            if isinstance(node.operator, Convolution | Pool) and (inside is None or (at, index) in inside):
                ways = len(node.operator.kernel)
                read, made = (
                    [dim.size for dim in graph.tensor(block, one).dims[-ways:]]
                    for one in (node.inputs[0].tensor, node.outputs[0])
                )
                short = [at for at, ranks in enumerate(grid(part)[:ways]) if made[at] < ranks]
                if short and max(read) > 1:
                    where = f"{axis_text(part)}: {node.path} makes {made[short[0]]} of {read[short[0]]} rows"
                    why = f"{where}, and {grid(part)[short[0]]} ranks would share them"
                    yield why, f"a part of the model that ends before it: spatial{part.ranks}[FIRST..LAST]"
                    return


def grid(part: Spatial) -> tuple[int, ...]:
    """Ranks along each extent."""
    return part.grid_ranks or (part.ranks,)


def apply(part: Spatial, subject: Subject) -> None:
    names = tuple(axis.name for axis in part.axes())
    cuts = Cuts(
        tuple((DIM + at, subject.mesh.group(name)) for at, name in enumerate(names) if name in subject.mesh),
        joined(subject, tuple(name for name in names if name in subject.mesh)),
    )
    (module,) = subject.parts
    graph, inside = subject.setting.graph, _inside(part, subject.setting.graph)
    begins = inside is None or _first_path(graph) in inside
    what = RewrittenPart(cuts, frozenset(layers(graph)), inside, bool(part.rest))
    rewriting = _rewriting(module, what, subject.sample, begins)
    subject.parts = [rewriting.made()]
    share = _Share(cuts, begins, bool(part.rest))
    subject.shares.append(functools.partial(share.of, microbatches=subject.setting.plan.microbatches))
    subject.sample = share.of(subject.sample, microbatches=1)
    along = tuple(name for name in names if name in subject.mesh)
    seen = rewriting.module.parameters() if part.rest else rewriting.weights  # in shares of rows, or of samples
    subject.summands |= dict.fromkeys(seen, along)


def _rewriting(module: nn.Module, part: RewrittenPart, sample: Batch, begins: bool) -> Rewriting:
    """Of the whole model: its first input that is an image lies in shares, if the part begins there."""
    shared = [tensor.dim() >= DIM + len(part.cuts.dims) for tensor in sample.inputs]
    first = shared.index(True) if begins and True in shared else len(shared)
    return Rewriting(module, part, sample.inputs, [at == first for at in range(len(shared))], "")


def _first_path(graph: Graph) -> str:
    """The first operator with windows."""
    nodes = (node for block in graph.blocks for node in block.nodes)
    return next((node.path for node in nodes if isinstance(node.operator, Convolution | Pool)), "")


def _inside(part: Spatial, graph: Graph) -> frozenset[str] | None:
    """The paths of the operators of a part of the model; none where it is all of it."""
    inside = members(graph, part.only)
    if inside is None:
        return None
    found = [(graph.blocks[at], graph.blocks[at].nodes[index].path) for at, index in inside]
    return frozenset(of_repetition(block, path, at) for block, path in found for at in range(block.times))


class _Share(NamedTuple):
    """A rank's share of a batch: rows of all images, or some samples of each micro-batch, or images by rows and the
    rest by samples."""

    cuts: Cuts
    by_rows: bool
    by_samples: bool

    def of(self, batch: Batch, microbatches: int) -> Batch:
        image, *others = batch.inputs
        if self.by_rows:
            image = self.cuts.own(image).contiguous()
        elif self.by_samples:
            image = self._samples(image, microbatches)
        if not self.by_samples:
            return Batch((image, *others), batch.target)
        return Batch(
            (image, *(self._samples(one, microbatches) for one in others)), self._samples(batch.target, microbatches)
        )

    def _samples(self, whole: torch.Tensor, microbatches: int) -> torch.Tensor:
        ranks, rank = dist.get_world_size(self.cuts.all), dist.get_rank(self.cuts.all)
        return whole.unflatten(0, (microbatches, ranks, -1))[:, rank].flatten(0, 1)
