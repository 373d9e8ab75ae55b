# pyright: basic
"""A module whose values lie in shares as far as they can: its forward is followed once with symbols (`torch.fx`).

Convolutions and pools fetch rows; what works element by element goes on with the share; a mean over the image is a sum
over ranks; before anything else the shares are gathered. Where shares are for a part of the model, they begin with it;
in the rest ranks are alike, or have other samples.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.proxy import TraceError

from foretell.errors import BadInput
from foretell.runtime.appliers._by_samples import IntoParts, IntoSamples
from foretell.runtime.appliers._cuts import Cuts, Mean, Share, WholeImage
from foretell.runtime.appliers._halo import DIM
from foretell.runtime.appliers._windows import WINDOWS, walk
from foretell.runtime.stages import tried

ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Hardswish, nn.Hardsigmoid)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # of a rank's own rows, or of all: +syncbn
ELEMENTWISE_MODULES = (*ACTIVATIONS, *NORMS, nn.Identity, nn.Dropout, nn.LocalResponseNorm)
ELEMENTWISE = (torch.relu, F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid)
ELEMENTWISE += (operator.add, operator.iadd, operator.mul, operator.imul, torch.add, torch.mul)
ELEMENTWISE_METHODS = ("relu", "relu_", "tanh", "sigmoid", "add", "add_", "mul", "mul_", "contiguous", "clone")


class _Layers(fx.Tracer):
    """Follows a module, and takes layers as single steps: others recompute them, or gather their weights."""

    def __init__(self, names: Container[str], prefix: str) -> None:
        super().__init__()
        self.names, self.prefix = names, prefix

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self.prefix + module_qualified_name in self.names or super().is_leaf_module(m, module_qualified_name)


class _StepsSeen(fx.Interpreter):
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


class RewrittenPart(NamedTuple):
    """What of a model is rewritten: its layers, and the operators that shares go through; none where all do. In the
    rest ranks have other samples, or are alike."""

    cuts: Cuts
    layers: Container[str]
    inside: frozenset[str] | None
    by_samples: bool = False


class Rewriting:
    """A module whose values lie in shares as far as they can, layer by layer."""

    def __init__(
        self, module: nn.Module, part: RewrittenPart, inputs: Sequence[Any], shared: Sequence[bool], path: str
    ) -> None:
        self.module, self.part, self.cuts, self.path = module, part, part.cuts, path
        try:
            self.graph = _Layers(part.layers, path).trace(module)
        except (TraceError, TypeError) as problem:
            what = f"{type(module).__name__} cannot be followed: {problem}"
            raise BadInput(what, where="spatial", fix="a model whose forward does not branch on values") from None
        seen = _StepsSeen(module, self.graph)
        tried(module, seen, inputs)
        self.shapes, self.inputs = seen.shapes, seen.inputs
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.shared = {node for node, in_shares in zip(placeholders, shared, strict=False) if in_shares}
        self.wholes: dict[fx.Node, fx.Node] = {}
        self.shares: dict[fx.Node, fx.Node] = {}  # that begin here
        self.weights: list[nn.Parameter] = []  # that see shares
        self.last = DIM + len(self.cuts.dims)  # dims up to, not with, this one

    def made(self) -> nn.Module:
        for node in list(self.graph.nodes):
            if self._begins(node):
                self._enter(node)
            if any(source in self.shared for source in node.all_input_nodes):
                self._place(node)
            elif self._is_layer(node) and self._reaches(node):
                self._rewrite(node)
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

    def _begins(self, node: fx.Node) -> bool:
        """Whether a step of the part that shares are for reads what does not lie in shares."""
        inside = self.part.inside
        if inside is None or node.op != "call_module" or self.path + str(node.target) not in inside:
            return False
        able = isinstance(self._module(node), (*WINDOWS, *ELEMENTWISE_MODULES))
        return able and not any(source in self.shared for source in node.all_input_nodes)

    def _enter(self, node: fx.Node) -> None:
        """Take a share of what a step reads; others that begin with the same find it there."""
        (source,) = node.all_input_nodes
        if source not in self.shares:
            kind = IntoParts if self.part.by_samples else Share
            with self.graph.inserting_before(node):
                self.shares[source] = self._step(kind(self.shapes[source], self.cuts), source, "into")
            self.shapes[self.shares[source]] = self.shapes[source]
            self.shared.add(self.shares[source])
        node.replace_input_with(source, self.shares[source])

    def _reaches(self, node: fx.Node) -> bool:
        """Whether a layer has steps of the part that shares are for."""
        within = f"{self.path}{node.target}."
        return any(path.startswith(within) for path in self.part.inside or ())

    def _is_layer(self, node: fx.Node) -> bool:
        known = node.op == "call_module" and self.path + str(node.target) in self.part.layers
        return known and not fx.Tracer().is_leaf_module(self._module(node), str(node.target))

    def _rewrite(self, node: fx.Node) -> None:
        """Go on inside a layer."""
        shared = [isinstance(source, fx.Node) and source in self.shared for source in node.args]
        path = str(node.target)
        inner = Rewriting(self._module(node), self.part, self.inputs[node], shared, f"{self.path}{path}.")
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
        if isinstance(module, WINDOWS):
            (source,) = node.all_input_nodes
            walk(module, str(node.target), self.cuts, self.shapes[source], self.shapes[node])
            return True
        return isinstance(module, ELEMENTWISE_MODULES)

    def _alike(self, node: fx.Node) -> bool:
        """Whether all tensors that a step reads lie in shares of the same rows."""
        tensors = [source for source in node.all_input_nodes if source in self.shapes]
        sizes = {tuple(self.shapes[source][DIM : self.last]) for source in tensors}
        return len(sizes) == 1 and all(source in self.shared for source in tensors)

    # the way out of shares

    def _is_mean(self, node: fx.Node) -> bool:
        """A mean over the image: make it a sum over ranks."""
        dims = self._mean_dims(node)
        if dims is None or self.part.by_samples:  # a rank takes the mean of its own images
            return False
        (source,) = node.all_input_nodes
        shape = self.shapes[source]
        count = 1
        for dim in dims:
            count *= shape[dim]
        keep = len(self.shapes[node]) == len(shape)
        with self.graph.inserting_before(node):
            mean = self._step(Mean(dims, keep, count, self.cuts.all), source, "out_of")
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
                kind = IntoSamples if self.part.by_samples else WholeImage
                with self.graph.inserting_before(node):
                    self.wholes[source] = self._step(kind(self.shapes[source], self.cuts), source, "out_of")
                self.shapes[self.wholes[source]] = self.shapes[source]
            node.replace_input_with(source, self.wholes[source])

    def _step(self, module: nn.Module, source: fx.Node, way: str) -> fx.Node:
        """A new step of the graph: a module, which others who follow the graph again take as one step."""
        name = f"{way}_shares_{len(self.wholes)}_{source.name}"
        self.module.add_module(name, module)
        return self.graph.call_module(name, (source,))
