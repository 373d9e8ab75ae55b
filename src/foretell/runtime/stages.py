# pyright: basic
"""A real module cut into the stages that the program has, however its forward is written.

Its forward is followed once with symbols (`torch.fx`), a layer being one step; what a stage hands on is what
later ones read. Values that no input decides (positions, masks) are made anew on every stage that wants them.
The stages hold the very modules of the model under the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg
from torch.fx.proxy import TraceError
from torch.nn.utils.stateless import _reparametrize_module

from foretell.errors import BadInput
from foretell.model.graph import Graph
from foretell.model.layers import layers
from foretell.runtime.tasks import Batch


def cut(module: nn.Module, graph: Graph, parts: Sequence[frozenset[str]], sample: Batch) -> list[nn.Module]:
    """One module a part; `parts` has the names of the layers in each, `sample` the shapes of a micro-batch."""
    traced = _traced(module, frozenset(layers(graph)), len(sample.inputs))
    _fold_sizes(module, traced, sample)
    place = _places(traced, parts)
    return [_Part(traced, place, at, len(parts)).made(module) for at in range(len(parts))]


class _Tracer(fx.Tracer):
    """Takes layers, and modules without layers in them, as single steps."""

    proxy_buffer_attributes = True  # tables are read up to a length that an input has

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self.names = names

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = f"{module_qualified_name}."
        return module_qualified_name in self.names or not any(name.startswith(inside) for name in self.names)


def _traced(module: nn.Module, names: frozenset[str], given: int) -> fx.Graph:
    """The steps of a module that is called with so many inputs: those that are left out are none."""
    parameters = list(inspect.signature(module.forward).parameters.values())[given:]
    left_out = {one.name: None for one in parameters if one.default is None}
    try:
        found = _Tracer(names).trace(module, left_out or None)
        _forget(found, given)
        return found
    except (TraceError, TypeError) as problem:
        what = f"{type(module).__name__} cannot be cut into stages: {problem}"
        raise BadInput(what, where="pp", fix="a model whose forward runs its layers in a row, or no pp") from None


def _forget(graph: fx.Graph, given: int) -> None:
    """Take inputs out that nobody gives, and what checks that nobody does."""
    beyond = [node for node in graph.nodes if node.op == "placeholder"][given:]
    for node in reversed([*beyond, *(user for one in beyond for user in one.users)]):
        if not node.users:
            graph.erase_node(node)


class _Sizes(fx.Interpreter):
    """Runs the module once and writes down every value that is no tensor: sizes."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.found: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, int | float | torch.Size):
            self.found[n] = value
        return value


def _fold_sizes(module: nn.Module, graph: fx.Graph, sample: Batch) -> None:
    """Put sizes in as numbers: a later stage does not see the tensor that they were read off."""
    sizes = _Sizes(module, graph)
    tried(module, sizes, sample.inputs)
    for node, value in sizes.found.items():
        for user in list(node.users):
            user.args = map_arg(user.args, lambda n, node=node, value=value: value if n is node else n)
            user.kwargs = map_arg(user.kwargs, lambda n, node=node, value=value: value if n is node else n)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output"):
            graph.erase_node(node)


def tried(module: nn.Module, walk: fx.Interpreter, inputs: Sequence[Any]) -> None:
    """Walk through a module once for the shapes; it keeps nothing of it, no running mean of a batch norm either."""
    training = module.training
    module.eval()
    with torch.no_grad(), on_shapes(module, inputs) as values:
        walk.run(*values)
    module.train(training)


@contextmanager
def on_shapes(module: nn.Module, inputs: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Inputs to walk through a module with. One that lies nowhere is walked through as if it were on a processor: its
    layers may talk to other ranks, and nobody takes what lies nowhere."""
    own = dict(_weights(module))
    if not any(one.is_meta for one in own.values()):
        yield inputs
        return
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = {one: _on_processor(one) for one in own.values()}  # what is tied stays so
        with _reparametrize_module(module, {name: made[one] for name, one in own.items()}):
            yield [_on_processor(one) if isinstance(one, torch.Tensor) else one for one in inputs]


def _weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights and buffers, tied ones under each of their names; of a module that lies in several stages once, because
    it is one place, where a second name would leave what the first one put there."""
    for path, part in module.named_modules():
        for name, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
            yield f"{path}.{name}" if path else name, tensor


def _on_processor(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, requires_grad=tensor.requires_grad)


def _places(graph: fx.Graph, parts: Sequence[frozenset[str]]) -> dict[fx.Node, int]:
    """The part of each step that an input decides: what is between two layers goes with the one before."""
    names = {name: at for at, own in enumerate(parts) for name in own}
    layer = {node: _layer(str(node.target), names) for node in graph.nodes if node.op == "call_module"}
    steps = [node for node in graph.nodes if node.op not in ("placeholder", "output") and _decided(node)]
    last = max((at for at, node in enumerate(steps) if layer.get(node)), default=-1)
    place: dict[fx.Node, int] = {}
    here = 0
    for at, node in enumerate(steps):
        here = len(parts) - 1 if at > last else max(here, names.get(layer.get(node, ""), here))
        place[node] = here
    return place


def _layer(path: str, names: Container[str]) -> str:
    """The layer that a module is, or is inside of: those who followed the module before may have taken it apart."""
    while path and path not in names:
        path = path.rpartition(".")[0]
    return path


def _decided(node: fx.Node) -> bool:
    """Whether an input of the model decides a value."""
    return node.op == "placeholder" or any(_decided(source) for source in node.all_input_nodes)


class _Part:
    """The steps of one part as a module of its own."""

    def __init__(self, graph: fx.Graph, place: dict[fx.Node, int], at: int, count: int) -> None:
        self.graph, self.place, self.at, self.count = graph, place, at, count
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        (self.output,) = (node for node in graph.nodes if node.op == "output")

    def made(self, module: nn.Module) -> nn.Module:
        new = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self._received():
            copies[node] = new.placeholder(node.name)
        for node, at in self.place.items():
            if at == self.at:
                self._copy(node, new, copies)
        for node in self._sent():
            self._copy(node, new, copies)
        new.output(map_arg(self._made(), lambda node: copies[node]))
        _leave_received(module, new)
        return fx.GraphModule(module, new, class_name=f"Stage{self.at}")

    def _copy(self, node: fx.Node, new: fx.Graph, copies: dict[fx.Node, fx.Node]) -> fx.Node:
        """A step in the new graph, with all that it reads and no input decides before it."""
        if node not in copies:
            for source in node.all_input_nodes:
                self._copy(source, new, copies)
            copies[node] = new.node_copy(node, lambda source: copies[source])
        return copies[node]

    def _received(self) -> list[fx.Node]:
        return self.inputs if self.at == 0 else list(self._crossing(self.at))

    def _sent(self) -> list[fx.Node]:
        return list(self._crossing(self.at + 1)) if self.at + 1 < self.count else self.output.all_input_nodes

    def _made(self) -> Any:
        """What the stage hands on: one value or several; the last one, whatever the model makes."""
        if self.at + 1 == self.count:
            return self.output.args[0]
        sent = self._sent()
        return sent[0] if len(sent) == 1 else tuple(sent)

    def _crossing(self, into: int) -> Iterator[fx.Node]:
        """Values made before a part, inputs among them, that it or a later one reads."""
        for node in (*self.inputs, *self.place):
            made = self.place.get(node, 0)
            if made < into and any(self._read(user) >= into for user in node.users):
                yield node

    def _read(self, user: fx.Node) -> int:
        return self.count - 1 if user is self.output else self.place[user]


def _leave_received(module: nn.Module, stage: fx.Graph) -> None:
    """A value that came from another stage is a leaf of autograd: the layer that reads it must not write over it."""
    for node in stage.nodes:
        if node.op == "call_module" and any(source.op == "placeholder" for source in node.all_input_nodes):
            reader = module.get_submodule(str(node.target))
            if getattr(reader, "inplace", False):
                setattr(reader, "inplace", False)  # noqa: B010 (a module's attributes are tensors to a type checker)
