# pyright: basic
"""Spatial parallelism: every rank has some rows of each image, and its neighbours' rows where windows overlap.

The forward of the module is followed once with symbols (`torch.fx`). Convolutions and pools fetch the rows that they
need beyond their share; what works element by element goes on with the share; a mean over the image is a sum over
ranks; before anything else the shares are gathered. Ranks go on alike from there, as if each had a loss of its own:
gradients that flow back into shares count for all of them, and weights that saw shares are averaged.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import fx, nn
from torch._C._distributed_c10d import _resolve_process_group
from torch.fx.proxy import TraceError

from foretell.errors import BadInput
from foretell.plan.plan import axis_text
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.spatial import Spatial
from foretell.runtime.appliers._halo import DIM, Rows, Window, exchanged, share
from foretell.runtime.stages import tried
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch

ORDER = 15

ALONE = ("tp", "pp", "filter", "channel", "cp")
"""Strategies beside which it does not run yet."""

CONVOLUTIONS: dict[type[nn.Module], Any] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d, nn.Conv3d: F.conv3d}
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Hardswish, nn.Hardsigmoid)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # of a rank's own rows, or of all: +syncbn
ELEMENTWISE_MODULES = (*ACTIVATIONS, *NORMS, nn.Identity, nn.Dropout, nn.LocalResponseNorm)
ELEMENTWISE = (torch.relu, F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid)
ELEMENTWISE += (operator.add, operator.iadd, operator.mul, operator.imul, torch.add, torch.mul)
ELEMENTWISE_METHODS = ("relu", "relu_", "tanh", "sigmoid", "add", "add_", "mul", "mul_", "contiguous", "clone")


def refusals(part: Spatial, setting: Setting) -> Iterator[tuple[str, str]]:
    said, plan = axis_text(part), setting.plan
    if part.grid_ranks or part.only:
        yield f"{said}: rows of the whole model alone run in shares yet", f"spatial{part.ranks}"
    beside = [axis.word for axis in plan.axes if axis.word in ALONE and axis.world > 1]
    if beside:
        yield f"{said} beside {beside[0]} does not run yet", f"dp and spatial{part.ranks}"
    data = plan.axis(Data)
    if data is not None and data.storage in ("zero2", "zero3"):
        yield f"{said} beside {data.storage} does not run yet", "dp, or dp:zero1"
    if plan.policy(Recompute) != Recompute():
        yield f"{said} with recomputation does not run yet", "no +recompute"


def apply(part: Spatial, subject: Subject) -> None:
    group = subject.mesh.group("spatial")
    (module,) = subject.parts
    rewriting = _Rewriting(module, group, subject.sample)
    subject.parts = [rewriting.made()]
    subject.shares.append(functools.partial(_rows, rewriting.size, group))
    subject.summands |= dict.fromkeys(rewriting.weights(), ("spatial",))


def _rows(size: int, group: dist.ProcessGroup, batch: Batch) -> Batch:
    own = share(size, dist.get_rank(group), dist.get_world_size(group))
    image, *others = batch.inputs
    return Batch((image.narrow(DIM, own.first, own.count).contiguous(), *others), batch.target)


class _Shapes(fx.Interpreter):
    """The shape of every value, when one rank has it all."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.found: dict[fx.Node, torch.Size] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.found[n] = value.shape
        return value


class _Rewriting:
    """A module whose values lie in shares as far as they can."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup, sample: Batch) -> None:
        self.module, self.group = module, group
        try:
            self.graph = fx.Tracer().trace(module)
        except (TraceError, TypeError) as problem:
            what = f"{type(module).__name__} cannot be followed: {problem}"
            raise BadInput(what, where="spatial", fix="a model whose forward does not branch on values") from None
        shapes = _Shapes(module, self.graph)
        tried(module, shapes, sample)
        self.shapes = shapes.found
        self.shared: set[fx.Node] = set()
        self.size = sample.inputs[0].shape[DIM]

    def weights(self) -> list[nn.Parameter]:
        """The weights that see shares."""
        steps = [node for node in self.graph.nodes if node.op == "call_module" and node in self.shared]
        return [weight for node in steps for weight in self._module(node).parameters()]

    def made(self) -> nn.Module:
        for node in list(self.graph.nodes):
            self._place(node)
        return fx.GraphModule(self.module, self.graph, class_name="InShares")

    def _module(self, node: fx.Node) -> nn.Module:
        return self.module.get_submodule(str(node.target))

    def _place(self, node: fx.Node) -> None:
        """Decide whether a value lies in shares, and change how it is made."""
        if node.op == "placeholder":
            if not self.shared and len(self.shapes[node]) > DIM:
                self.shared.add(node)
        elif any(source in self.shared for source in node.all_input_nodes):
            if self._in_shares(node):
                self.shared.add(node)
            elif not self._is_mean(node):
                self._gather(node)

    def _in_shares(self, node: fx.Node) -> bool:
        """Whether a step can go on with shares."""
        if node.op == "call_function":
            return node.target in ELEMENTWISE and self._alike(node)
        if node.op == "call_method":
            return node.target in ELEMENTWISE_METHODS and self._alike(node)
        if node.op != "call_module":
            return False
        module = self._module(node)
        if isinstance(module, (*CONVOLUTIONS, *MAX_POOLS, *AVERAGE_POOLS)):
            self._walk(node, module)
            return True
        return isinstance(module, ELEMENTWISE_MODULES)

    def _alike(self, node: fx.Node) -> bool:
        """Whether all tensors that a step reads lie in shares of the same rows."""
        tensors = [source for source in node.all_input_nodes if source in self.shapes]
        sizes = {self.shapes[source][DIM] if len(self.shapes[source]) > DIM else 0 for source in tensors}
        return len(sizes) == 1 and all(source in self.shared for source in tensors)

    # windows

    def _walk(self, node: fx.Node, module: nn.Module) -> None:
        (source,) = node.all_input_nodes
        size, made = self.shapes[source][DIM], self.shapes[node][DIM]
        kernel, stride, padding = (_first(getattr(module, name)) for name in ("kernel_size", "stride", "padding"))
        reach = _first(getattr(module, "dilation", 1)) * (kernel - 1) + 1
        window = Window(size, made, reach, stride, padding)
        _check(node, module, window)
        module.forward = functools.partial(_windowed, module, window, self.group)

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
            mean = self.graph.call_function(_mean, (source, dims, keep, count, self.group.group_name))
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
        return found if DIM in found else None

    def _gather(self, node: fx.Node) -> None:
        """Before a step that needs everything."""
        for source in [one for one in node.all_input_nodes if one in self.shared]:
            with self.graph.inserting_before(node):
                whole = self.graph.call_function(_whole, (source, self.shapes[source][DIM], self.group.group_name))
            self.shapes[whole] = self.shapes[source]
            node.replace_input_with(source, whole)


def _check(node: fx.Node, module: nn.Module, window: Window) -> None:
    """Refuse what windows over shares cannot do yet."""
    path = str(node.target)
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "ceil_mode", False):
        raise BadInput(f"{path} pads or rounds in a way that does not run in shares yet", where="spatial")
    counts = getattr(module, "count_include_pad", True)
    if window.padding and (not counts or getattr(module, "divisor_override", None)):
        raise BadInput(f"{path} does not count its padding; that does not run in shares yet", where="spatial")


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple | list) else value)


def _windowed(module: Any, window: Window, group: dist.ProcessGroup, x: torch.Tensor) -> torch.Tensor:
    """A convolution or pool over the rows that its windows reach; padding is put on by hand where the image ends."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    reach = window.reach(rank, ranks)
    rows = exchanged(x, window, group)
    above, below = max(0, -reach.first), max(0, reach.last - window.size)
    around = (*(0, 0) * (x.dim() - DIM - 1), above, below)
    nothing = -torch.inf if isinstance(module, MAX_POOLS) else 0.0
    rows = F.pad(rows, around, value=nothing) if above or below else rows
    return _walked(module, rows)


def _walked(module: Any, rows: torch.Tensor) -> torch.Tensor:
    """The module's own step without padding above and below."""
    extents = rows.dim() - DIM
    padding = (0, *_each(module.padding, extents)[1:])
    for kind, function in CONVOLUTIONS.items():
        if isinstance(module, kind):
            return function(rows, module.weight, module.bias, module.stride, padding, module.dilation, module.groups)
    pools = (F.max_pool1d, F.max_pool2d, F.max_pool3d), (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    if isinstance(module, MAX_POOLS):
        return pools[0][extents - 1](rows, module.kernel_size, module.stride, padding, module.dilation)
    return pools[1][extents - 1](rows, module.kernel_size, module.stride, padding)


def _each(value: Any, extents: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * extents


def _named(group: str) -> dist.ProcessGroup:
    """A process group by its name: a step of a graph has texts and numbers for arguments."""
    return _resolve_process_group(group)  # pyright: ignore[reportArgumentType]


def _mean(x: torch.Tensor, dims: tuple[int, ...], keep: bool, count: int, group: str) -> torch.Tensor:
    return _Total.apply(x.sum(dims, keepdim=keep) / count, _named(group))


class _Total(torch.autograd.Function):
    """A sum over ranks that all go on with alike, each as if its loss were one of many: gradients count for all."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.ranks = dist.get_world_size(group)
        total = summand.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.ranks, None


def _whole(x: torch.Tensor, size: int, group: str) -> torch.Tensor:
    return _Gathered.apply(x, size, _named(group))


class _Gathered(torch.autograd.Function):
    """All rows of shares that may differ by one; gradients count for all ranks here too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, size: int, group: dist.ProcessGroup) -> torch.Tensor:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        ctx.own, ctx.ranks = share(size, rank, ranks), ranks
        shares = [share(size, other, ranks) for other in range(ranks)]
        most = shares[0].count
        mine = F.pad(x, (*(0, 0) * (x.dim() - DIM - 1), 0, most - ctx.own.count)).contiguous()
        found = x.new_empty((ranks, *mine.shape))
        dist.all_gather_into_tensor(found.view(-1), mine.view(-1), group=group)
        return torch.cat([part.narrow(DIM, 0, own.count) for part, own in zip(found, shares, strict=True)], DIM)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        own: Rows = ctx.own
        return gradient.narrow(DIM, own.first, own.count) * ctx.ranks, None, None
