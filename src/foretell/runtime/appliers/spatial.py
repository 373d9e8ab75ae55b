# pyright: basic
"""Spatial parallelism: every rank has a part of each image, and its neighbours' rows where windows overlap.

The forward of the module is followed once with symbols (`torch.fx`). Convolutions and pools fetch the rows that they
need beyond their share; what works element by element goes on with the share; a mean over the image is a sum over
ranks; before anything else the shares are gathered. Ranks go on alike from there, as if each had a loss of its own:
gradients that flow back into shares count for all of them, and weights that saw shares are averaged.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.proxy import TraceError

from foretell.errors import BadInput
from foretell.model.graph import Graph
from foretell.model.layers import layers
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.pooling import Pool
from foretell.plan.parts import members
from foretell.plan.plan import axis_text
from foretell.plan.setting import Setting
from foretell.plan.strategies.spatial import Spatial
from foretell.runtime import waiting
from foretell.runtime.appliers._halo import DIM, Rows, Window, exchanged, share
from foretell.runtime.appliers._replicas import joined
from foretell.runtime.division import of_repetition
from foretell.runtime.stages import tried
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch

ORDER = 9

ALONE = ("tp", "cp")
"""Strategies beside which it does not run yet."""

CONVOLUTIONS: dict[type[nn.Module], Any] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d, nn.Conv3d: F.conv3d}
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Hardswish, nn.Hardsigmoid)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # of a rank's own rows, or of all: +syncbn
ELEMENTWISE_MODULES = (*ACTIVATIONS, *NORMS, nn.Identity, nn.Dropout, nn.LocalResponseNorm)
ELEMENTWISE = (torch.relu, F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid)
ELEMENTWISE += (operator.add, operator.iadd, operator.mul, operator.imul, torch.add, torch.mul)
ELEMENTWISE_METHODS = ("relu", "relu_", "tanh", "sigmoid", "add", "add_", "mul", "mul_", "contiguous", "clone")


def refusals(part: Spatial, setting: Setting) -> Iterator[tuple[str, str]]:
    said, plan = axis_text(part), setting.plan
    if part.rest:
        yield f"{said}: samples in the rest of the model do not run in shares yet", f"spatial{part.ranks}[{part.only}]"
    beside = [axis.word for axis in plan.axes if axis.word in ALONE and axis.world > 1]
    if beside:
        yield f"{said} beside {beside[0]} does not run yet", f"dp, pp, filter or channel beside spatial{part.ranks}"
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
    cuts = _Cuts(
        tuple((DIM + at, subject.mesh.group(name)) for at, name in enumerate(names) if name in subject.mesh),
        joined(subject, tuple(name for name in names if name in subject.mesh)),
    )
    (module,) = subject.parts
    rewriting = _rewriting(module, cuts, subject.sample, part, subject.setting.graph)
    subject.parts = [rewriting.made()]
    share = functools.partial(_share, cuts)
    subject.shares.append(share)
    subject.sample = share(subject.sample)
    along = tuple(name for name in names if name in subject.mesh)
    subject.summands |= dict.fromkeys(rewriting.weights, along)


def _rewriting(module: nn.Module, cuts: _Cuts, sample: Batch, part: Spatial, graph: Graph) -> _Rewriting:
    """Of the whole model: its first input that is an image lies in shares."""
    shared = [tensor.dim() >= DIM + len(cuts.dims) for tensor in sample.inputs]
    first = shared.index(True) if True in shared else len(shared)
    what = _Part(cuts, frozenset(layers(graph)), _inside(part, graph))
    return _Rewriting(module, what, sample.inputs, [at == first for at in range(len(shared))], "")


def _inside(part: Spatial, graph: Graph) -> frozenset[str] | None:
    """The paths of the operators of a part of the model; none where it is all of it."""
    inside = members(graph, part.only)
    if inside is None:
        return None
    found = [(graph.blocks[at], graph.blocks[at].nodes[index].path) for at, index in inside]
    return frozenset(of_repetition(block, path, at) for block, path in found for at in range(block.times))


class _Cuts(NamedTuple):
    """The dims that lie in shares, each with the ranks along it, and all ranks together, the last dim's fastest."""

    dims: tuple[tuple[int, dist.ProcessGroup], ...]
    all: dist.ProcessGroup

    def rows(self, sizes: Sequence[int], rank: int) -> list[Rows]:
        """The share of one of all ranks, where the whole has these sizes along the dims."""
        found: list[Rows] = []
        for size, (_, group) in zip(reversed(sizes), reversed(self.dims), strict=True):
            rank, place = divmod(rank, dist.get_world_size(group))
            found.append(share(size, place, dist.get_world_size(group)))
        return found[::-1]

    def sizes(self, shape: Sequence[int]) -> list[int]:
        return [shape[dim] for dim, _ in self.dims]

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's share of a whole."""
        rows = self.rows(self.sizes(x.shape), dist.get_rank(self.all))
        for own, (dim, _) in zip(rows, self.dims, strict=True):
            x = x.narrow(dim, own.first, own.count)
        return x


def _share(cuts: _Cuts, batch: Batch) -> Batch:
    image, *others = batch.inputs
    return Batch((cuts.own(image).contiguous(), *others), batch.target)


class _Layers(fx.Tracer):
    """Follows a module, and takes layers as single steps: others recompute them, or gather their weights."""

    def __init__(self, names: Container[str], prefix: str) -> None:
        super().__init__()
        self.names, self.prefix = names, prefix

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self.prefix + module_qualified_name in self.names or super().is_leaf_module(m, module_qualified_name)


class _Seen(fx.Interpreter):
    """What every step reads and makes, when one rank has it all."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.shapes: dict[fx.Node, torch.Size] = {}
        self.inputs: dict[fx.Node, tuple[Any, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_module":
            self.inputs[n] = tuple(self.fetch_args_kwargs_from_env(n)[0])
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.shapes[n] = value.shape
        return value


class _Part(NamedTuple):
    """What of a model is rewritten: its layers, and the operators that shares go through; none where all do."""

    cuts: _Cuts
    layers: Container[str]
    inside: frozenset[str] | None


class _Rewriting:
    """A module whose values lie in shares as far as they can, layer by layer."""

    def __init__(
        self, module: nn.Module, part: _Part, inputs: Sequence[Any], shared: Sequence[bool], path: str
    ) -> None:
        self.module, self.part, self.cuts, self.path = module, part, part.cuts, path
        try:
            self.graph = _Layers(part.layers, path).trace(module)
        except (TraceError, TypeError) as problem:
            what = f"{type(module).__name__} cannot be followed: {problem}"
            raise BadInput(what, where="spatial", fix="a model whose forward does not branch on values") from None
        seen = _Seen(module, self.graph)
        tried(module, seen, inputs)
        self.shapes, self.inputs = seen.shapes, seen.inputs
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.shared = {node for node, in_shares in zip(placeholders, shared, strict=False) if in_shares}
        self.wholes: dict[fx.Node, fx.Node] = {}
        self.weights: list[nn.Parameter] = []  # that see shares
        self.last = DIM + len(self.cuts.dims)  # dims up to, not with, this one

    def made(self) -> nn.Module:
        for node in list(self.graph.nodes):
            if any(source in self.shared for source in node.all_input_nodes):
                self._place(node)
        return fx.GraphModule(self.module, self.graph, class_name="InShares")

    @property
    def leaves_in_shares(self) -> bool:
        """Whether what the module makes lies in shares."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        return any(source in self.shared for source in output.all_input_nodes)

    def _module(self, node: fx.Node) -> nn.Module:
        return self.module.get_submodule(str(node.target))

    def _place(self, node: fx.Node) -> None:
        """Decide whether a value lies in shares, and change how it is made."""
        if node.op == "output":
            if not self.path or len(node.all_input_nodes) > 1:
                self._gather(node)
        elif self._is_layer(node):
            self._rewrite(node)
        elif self._in_shares(node):
            self.shared.add(node)
            if node.op == "call_module":
                self.weights += self._module(node).parameters()
        elif not self._is_mean(node):
            self._gather(node)

    def _is_layer(self, node: fx.Node) -> bool:
        known = node.op == "call_module" and self.path + str(node.target) in self.part.layers
        return known and not fx.Tracer().is_leaf_module(self._module(node), str(node.target))

    def _rewrite(self, node: fx.Node) -> None:
        """Go on inside a layer."""
        shared = [isinstance(source, fx.Node) and source in self.shared for source in node.args]
        path = str(node.target)
        inner = _Rewriting(self._module(node), self.part, self.inputs[node], shared, f"{self.path}{path}.")
        self.module.set_submodule(path, inner.made())
        self.weights += inner.weights
        if inner.leaves_in_shares:
            self.shared.add(node)

    def _in_shares(self, node: fx.Node) -> bool:
        """Whether a step can go on with shares."""
        if node.op == "call_function":
            return node.target in ELEMENTWISE and self._alike(node)
        if node.op == "call_method":
            return node.target in ELEMENTWISE_METHODS and self._alike(node)
        inside = self.part.inside
        if node.op != "call_module" or (inside is not None and self.path + str(node.target) not in inside):
            return False
        module = self._module(node)
        if isinstance(module, (*CONVOLUTIONS, *MAX_POOLS, *AVERAGE_POOLS)):
            self._walk(node, module)
            return True
        return isinstance(module, ELEMENTWISE_MODULES)

    def _alike(self, node: fx.Node) -> bool:
        """Whether all tensors that a step reads lie in shares of the same rows."""
        tensors = [source for source in node.all_input_nodes if source in self.shapes]
        sizes = {tuple(self.shapes[source][DIM : self.last]) for source in tensors}
        return len(sizes) == 1 and all(source in self.shared for source in tensors)

    # windows

    def _walk(self, node: fx.Node, module: nn.Module) -> None:
        (source,) = node.all_input_nodes
        ways = len(self.shapes[node]) - DIM
        windows: dict[int, tuple[Window, dist.ProcessGroup]] = {}
        for dim, group in self.cuts.dims:
            kernel, stride, padding, dilation = (
                _each(getattr(module, name, 1), ways)[dim - DIM]
                for name in ("kernel_size", "stride", "padding", "dilation")
            )
            size, made = self.shapes[source][dim], self.shapes[node][dim]
            windows[dim] = Window(size, made, dilation * (kernel - 1) + 1, stride, padding), group
            _check(node, module, windows[dim][0])
        module.forward = functools.partial(_windowed, module, windows)

    # the way out of shares

    def _is_mean(self, node: fx.Node) -> bool:
        """A mean over the image: make it a sum over ranks."""
        dims = self._mean_dims(node)
        if dims is None:
            return False
        (source,) = node.all_input_nodes
        shape = self.shapes[source]
        count = 1
        for dim in dims:
            count *= shape[dim]
        keep = len(self.shapes[node]) == len(shape)
        with self.graph.inserting_before(node):
            mean = self._step(_Mean(dims, keep, count, self.cuts.all), source)
        node.replace_all_uses_with(mean)
        self.shapes[mean] = self.shapes[node]
        self.graph.erase_node(node)
        return True

    def _mean_dims(self, node: fx.Node) -> tuple[int, ...] | None:
        """The dims that a step takes the mean of, if it does and rows are among them."""
        (source, *_) = node.all_input_nodes
        ways = len(self.shapes[source])
        if node.op == "call_module" and isinstance(self._module(node), ADAPTIVE):
            whole = all(size == 1 for size in self.shapes[node][DIM:])
            return tuple(range(DIM, ways)) if whole else None
        if node.target not in ("mean", torch.mean) or len(node.args) < 2:
            return None
        said: Any = node.args[1]
        found = tuple(int(dim) % ways for dim in (said if isinstance(said, tuple | list) else (said,)))
        cut = {dim for dim, _ in self.cuts.dims}
        return found if cut <= set(found) else None

    def _gather(self, node: fx.Node) -> None:
        """Before a step that needs everything; others that need it too find it there."""
        for source in [one for one in node.all_input_nodes if one in self.shared]:
            if source not in self.wholes:
                with self.graph.inserting_before(node):
                    self.wholes[source] = self._step(_Whole(self.shapes[source], self.cuts), source)
                self.shapes[self.wholes[source]] = self.shapes[source]
            node.replace_input_with(source, self.wholes[source])

    def _step(self, module: nn.Module, source: fx.Node) -> fx.Node:
        """A new step of the graph: a module, which others who follow the graph again take as one step."""
        name = f"out_of_shares_{len(self.wholes)}_{source.name}"
        self.module.add_module(name, module)
        return self.graph.call_module(name, (source,))


def _check(node: fx.Node, module: nn.Module, window: Window) -> None:
    """Refuse what windows over shares cannot do yet."""
    path = str(node.target)
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "ceil_mode", False):
        raise BadInput(f"{path} pads or rounds in a way that does not run in shares yet", where="spatial")
    counts = getattr(module, "count_include_pad", True)
    if window.padding and (not counts or getattr(module, "divisor_override", None)):
        raise BadInput(f"{path} does not count its padding; that does not run in shares yet", where="spatial")


def _windowed(module: Any, windows: dict[int, tuple[Window, dist.ProcessGroup]], x: torch.Tensor) -> torch.Tensor:
    """A convolution or pool over the rows that its windows reach; padding is put on by hand where the image ends.

    Dim by dim: what was fetched along one takes part in the next, corners come that way.
    """
    around = [0] * (2 * (x.dim() - DIM))
    for dim, (window, group) in windows.items():
        reach = window.reach(dist.get_rank(group), dist.get_world_size(group))
        x = exchanged(x, dim, window, group)
        last = 2 * (x.dim() - 1 - dim)  # torch pads from the last dim on
        around[last : last + 2] = max(0, -reach.first), max(0, reach.last - window.size)
    nothing = -torch.inf if isinstance(module, MAX_POOLS) else 0.0
    return _walked(module, F.pad(x, around, value=nothing) if any(around) else x, windows)


def _walked(module: Any, rows: torch.Tensor, cut: Container[int]) -> torch.Tensor:
    """The module's own step, without padding along dims in shares."""
    extents = rows.dim() - DIM
    padding = tuple(0 if DIM + at in cut else one for at, one in enumerate(_each(module.padding, extents)))
    for kind, function in CONVOLUTIONS.items():
        if isinstance(module, kind):
            return function(rows, module.weight, module.bias, module.stride, padding, module.dilation, module.groups)
    pools = (F.max_pool1d, F.max_pool2d, F.max_pool3d), (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    if isinstance(module, MAX_POOLS):
        return pools[0][extents - 1](rows, module.kernel_size, module.stride, padding, module.dilation)
    return pools[1][extents - 1](rows, module.kernel_size, module.stride, padding)


def _each(value: Any, extents: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * extents


class _Mean(nn.Module):
    """The mean over the image, out of shares."""

    def __init__(self, dims: tuple[int, ...], keep: bool, count: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.dims, self.keep, self.count, self.group = dims, keep, count, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Total.apply(x.sum(self.dims, keepdim=self.keep) / self.count, self.group)


class _Total(torch.autograd.Function):
    """A sum over ranks that all go on with alike, each as if its loss were one of many: gradients count for all."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.ranks = dist.get_world_size(group)
        total = summand.contiguous().clone()
        with waiting.along(group):
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.ranks, None


class _Whole(nn.Module):
    """The whole of an image in shares."""

    def __init__(self, shape: torch.Size, cuts: _Cuts) -> None:
        super().__init__()
        self.sizes, self.cuts = cuts.sizes(shape), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Gathered.apply(x, self.sizes, self.cuts)


class _Gathered(torch.autograd.Function):
    """All rows of shares that may differ by one; gradients count for all ranks here too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], cuts: _Cuts) -> torch.Tensor:
        ranks = dist.get_world_size(cuts.all)
        ctx.cuts, ctx.ranks = cuts, ranks
        most = [rows.count for rows in cuts.rows(sizes, 0)]
        mine = _padded(x, cuts, most).contiguous()
        found = x.new_empty((ranks, *mine.shape))
        with waiting.along(cuts.all):
            dist.all_gather_into_tensor(found.view(-1), mine.view(-1), group=cuts.all)
        whole = x.new_empty(_resized(x.shape, cuts, sizes))
        for rank, part in enumerate(found):
            _put(whole, part, cuts, cuts.rows(sizes, rank))
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.cuts.own(gradient) * ctx.ranks, None, None


def _padded(x: torch.Tensor, cuts: _Cuts, most: list[int]) -> torch.Tensor:
    """A share as large as the largest."""
    around = [0] * (2 * (x.dim() - DIM))
    for (dim, _), count in zip(cuts.dims, most, strict=True):
        around[2 * (x.dim() - 1 - dim) + 1] = count - x.shape[dim]
    return F.pad(x, around) if any(around) else x


def _resized(shape: torch.Size, cuts: _Cuts, sizes: list[int]) -> list[int]:
    found = list(shape)
    for (dim, _), size in zip(cuts.dims, sizes, strict=True):
        found[dim] = size
    return found


def _put(whole: torch.Tensor, part: torch.Tensor, cuts: _Cuts, rows: list[Rows]) -> None:
    """A rank's share at its place."""
    for own, (dim, _) in zip(rows, cuts.dims, strict=True):
        whole, part = whole.narrow(dim, own.first, own.count), part.narrow(dim, 0, own.count)
    whole.copy_(part)
