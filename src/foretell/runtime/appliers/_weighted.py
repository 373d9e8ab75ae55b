# pyright: basic
"""What filter and channel parallelism share: layers with weights, cut one by one as the program cuts them.

Beside layers that have other samples on each rank, the first of them takes the samples of all (`_beside_samples`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from foretell.model.operators.convolution import Convolution
from foretell.model.operators.matmul import Matmul
from foretell.plan.setting import Setting
from foretell.plan.strategies._weight_split import WeightSplit
from foretell.runtime.appliers import _beside_samples, _sharing
from foretell.runtime.appliers._beside_samples import borders, share_samples
from foretell.runtime.division import divided
from foretell.runtime.subject import Subject
from foretell.units import ceil_div

ORDER = 20

Cut = Callable[[nn.Module, dist.ProcessGroup, bool], dict[str, int]]
"""Leaves a module with its share of the work, whether it reads what every rank has or each rank's own samples; the
names of its weights that are shares now, and along which dim."""

BESIDE = ("tp", "filter", "channel")
"""Strategies that cut layers with weights."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (*CONVOLUTIONS, nn.Linear)


def refusals(part: WeightSplit, setting: Setting) -> Iterator[tuple[str, str]]:
    """Layers whose shares are not written yet, and axes that would cut the same ones."""
    loops = _cut_loops(part, setting)
    others = {
        node.path
        for _, node in setting.graph.nodes()
        if loops.get(node.path) and not isinstance(node.operator, Convolution | Matmul)
    }
    if others:
        yield f"{part.word}{part.ranks}: {min(others)} does not run in shares yet", "a model of convolutions"
    yield from _left_out(part, setting, loops)
    if part.rest:
        yield from _beside_samples.refusals(part, setting)
    beside = [axis.word for axis in setting.plan.axes if axis.word in BESIDE and axis.word != part.word]
    if beside:
        yield f"{part.word}{part.ranks} beside {beside[0]}: both cut the same layers", "one of them"


def _left_out(part: WeightSplit, setting: Setting, loops: dict[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Layers of which the last ranks would have nothing: shares are those of `torch.chunk`."""
    for block, node in setting.graph.nodes():
        if loops.get(node.path) and isinstance(node.operator, Convolution | Matmul):
            tensor = node.outputs[0] if part.word == "filter" else node.inputs[0].tensor
            dims = setting.graph.tensor(block, tensor).dims
            size = dims[1 if isinstance(node.operator, Convolution) else -1].size
            if (part.ranks - 1) * ceil_div(size, part.ranks) >= size:
                why = f"{part.word}{part.ranks}: of {size} features of {node.path} the last rank would have none"
                yield (
                    why,
                    f"a number of ranks that divides {size}, or a part of the model: {part.word}{part.ranks}[...]",
                )
                return


def apply(part: WeightSplit, subject: Subject, split: Cut) -> None:
    """Cut every layer whose weights the program divides."""
    group, loops = subject.mesh.group(part.word), _cut_loops(part, subject.setting)
    enters = borders(subject.setting, part.word).enters if part.rest else frozenset[str]()
    shares: dict[str, tuple[int, int]] = {}  # the dim of each weight that is in shares, and its size as a whole
    for own in subject.parts:
        for name, module in list(own.named_modules()):
            if isinstance(module, LAYERS) and loops.get(name):
                shapes = {weight: value.shape for weight, value in module.named_parameters(recurse=False)}
                found = split(module, group, name in enters)
                shares |= {f"{name}.{weight}": (dim, shapes[weight][dim]) for weight, dim in found.items()}

    def whole(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        if name not in shares:
            return name, share
        dim, size = shares[name]
        return name, _sharing.gathered(share, dim, group, size)

    subject.wholes.append(whole)
    if part.rest:
        share_samples(part, subject, group)


def _cut_loops(part: WeightSplit, setting: Setting) -> dict[str, frozenset[str]]:
    """Loops that the axis divides of every operator that is cut by its weights."""
    loops = divided(setting, part.word)
    return {path: own & {"in", "out"} for path, own in loops.items()} if part.rest else loops


def features(module: nn.Module) -> int:
    """The dim of a layer's inputs and outputs that its features lie along."""
    return 1 if isinstance(module, CONVOLUTIONS) else -1


def keep(module: nn.Module, name: str, dim: int, group: dist.ProcessGroup) -> None:
    """Leave this rank's share of a weight; it stays the same one to all who know it."""
    weight = getattr(module, name)
    weight.data = _sharing.own(weight.detach(), dim, group).clone()
