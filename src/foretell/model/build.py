"""Writing a graph down: the one way that zoo files and importers add operators.

    g = Builder("two layers")
    x = g.input("x", dims(sample=8, hidden=64))
    with g.scope("up"):
        x = linear(g, x, dims(ffn=256))
    x = activation(g, x, "gelu")
    graph = g.graph()

The builder decides, from what the operator declares, which gradients run and which tensors
autograd keeps. Repeated blocks are found afterwards (`fold`), never declared.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.model.dims import Dim, Dims, Loop
from foretell.model.fold import fold
from foretell.model.graph import Flat, Graph, Node, Operand, Tensor
from foretell.model.operator import Operator
from foretell.model.operators.layout import View


def dims(**sizes: int) -> Dims:
    """Dims from keywords, outermost first: dims(sample=8, class_=10); a last underscore is dropped."""
    return tuple(Dim(name.rstrip("_"), size) for name, size in sizes.items())


MOST_WRITTEN = 200_000
"""Operators that may be written down before they are folded: more is a slip, and would take minutes."""


class Value(NamedTuple):
    """A tensor while the graph is being written."""

    tensor: int
    dims: Dims
    dtype: str
    needs_gradient: bool

    def dim(self, name: str) -> Dim:
        """The dim of this name."""
        return next(dim for dim in self.dims if dim.name == name)

    def size(self, name: str) -> int:
        return self.dim(name).size


class Builder:
    """Collects tensors and operators in running order."""

    def __init__(self, name: str, dtype: str = "fp32", batch: int = 1) -> None:
        self.name = name
        self.dtype = dtype
        self.batch = batch
        self.frozen = False  # parameters made while this is set are not trained
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._scopes: list[str] = []
        self._read: set[int] = set()  # tensors that some operator sends a gradient back to

    @contextmanager
    def scope(self, path: str | int) -> Generator[None]:
        """Operators added inside belong to this part of the module tree."""
        self._scopes.append(str(path))
        try:
            yield
        finally:
            self._scopes.pop()

    @property
    def path(self) -> str:
        return ".".join(self._scopes)

    def input(self, name: str, shape: Dims, dtype: str = "") -> Value:
        """A tensor that comes from outside; no gradient flows into it."""
        return self._add(shape, dtype or self.dtype, role="input", name=name)

    def parameter(self, name: str, shape: Dims, dtype: str = "", trainable: bool = True) -> Value:
        """A weight; use the value again to share it."""
        trainable = trainable and not self.frozen
        full = f"{self.path}.{name}".lstrip(".")
        return self._add(shape, dtype or self.dtype, "parameter", full, trainable=trainable, needs_gradient=trainable)

    def buffer(self, name: str, shape: Dims, dtype: str = "") -> Value:
        """State that is kept with the weights but not trained (running statistics)."""
        return self._add(shape, dtype or self.dtype, "buffer", f"{self.path}.{name}".lstrip("."))

    def apply(
        self,
        operator: Operator,
        loops: Mapping[str, Dims],
        inputs: Mapping[str, Value],
        shape: Dims,
        *,
        dtype: str = "",
        storage: Value | None = None,
        also: tuple[Dims, ...] = (),
    ) -> Value:
        """Add one operator and give its output.

        `storage` makes the output a view of that value (or an in-place update of it); `also` are
        further outputs, found at the indices after the first.
        """
        if len(self._nodes) >= MOST_WRITTEN:
            raise BadInput(f"more than {MOST_WRITTEN:,} operators", fix="fewer layers, or shorter sequences")
        needs = [name for name, value in inputs.items() if value.needs_gradient]
        first = next(iter(inputs.values()))
        owner = self._tensors[storage.tensor].storage if storage else None
        kind = dtype or first.dtype
        output = self._add(shape, kind, storage=owner, needs_gradient=bool(needs))
        outputs = [output.tensor, *(self._add(more, kind, needs_gradient=bool(needs)).tensor for more in also)]
        kept: list[int] = []
        for name in operator.keeps(needs) if needs else ():
            if name == "y":
                kept.append(output.tensor)
            elif name in inputs:
                kept.append(inputs[name].tensor)
            elif name in operator.extras():
                over, extra = operator.extras()[name]
                extra_dims = tuple(dim for loop in over for dim in loops[loop])
                kept.append(self._add(extra_dims, first.dtype if extra == "same" else extra, "kept", name).tensor)
        gradients: list[str] = []
        if any(name not in operator.weight_operands for name in needs):
            gradients.append("input_gradient")
        if any(name in operator.weight_operands for name in needs):
            gradients.append("weight_gradient")
        self._nodes.append(
            Node(
                path=self.path,
                operator=operator,
                loops=tuple(Loop(name, over) for name, over in loops.items()),
                inputs=tuple(Operand(name, value.tensor) for name, value in inputs.items()),
                outputs=tuple(outputs),
                keeps=tuple(kept),
                gradients=tuple(gradients),
                gradient_sums=self._gradient_sums(operator, inputs),
            )
        )
        return output

    def _gradient_sums(self, operator: Operator, inputs: Mapping[str, Value]) -> tuple[str, ...]:
        """Operands that an earlier operator read too: from the second reader on, gradients are added up.

        Slices of one tensor do not overlap. (Parts of a concatenation are not told apart by their loops
        and are left out.)
        """
        sums: list[str] = []
        for name, value in inputs.items():
            if not value.needs_gradient or operator == View("slice"):
                continue
            if value.tensor in self._read and name in operator.spans:
                sums.append(name)
            self._read.add(value.tensor)
        return tuple(sums)

    def value(self, index: int, like: Value) -> Value:
        """A further output of an operator, by its index."""
        tensor = self._tensors[index]
        return Value(index, tensor.dims, tensor.dtype, like.needs_gradient)

    def flat(self) -> Flat:
        """All that was written down, the inputs numbered first."""
        order = sorted(range(len(self._tensors)), key=lambda at: self._tensors[at].role != "input")
        number = {tensor: at for at, tensor in enumerate(order)}
        tensors = [self._tensors[at] for at in order]
        return Flat(
            tuple(msgspec.structs.replace(tensor, storage=number[tensor.storage]) for tensor in tensors),
            tuple(
                msgspec.structs.replace(
                    node,
                    inputs=tuple(Operand(operand.name, number[operand.tensor]) for operand in node.inputs),
                    outputs=tuple(number[output] for output in node.outputs),
                    keeps=tuple(number[kept] for kept in node.keeps),
                )
                for node in self._nodes
            ),
        )

    def graph(self, warnings: tuple[str, ...] = (), source: str = "") -> Graph:
        """The finished graph, with its repeating blocks found."""
        return Graph(self.name, fold(self.flat()), self.batch, warnings, source)

    def _add(
        self,
        shape: Dims,
        dtype: str,
        role: str = "activation",
        name: str = "",
        storage: int | None = None,
        trainable: bool = False,
        needs_gradient: bool = False,
    ) -> Value:
        index = len(self._tensors)
        owner = index if storage is None else storage
        self._tensors.append(Tensor(shape, dtype, owner, role, trainable, name))
        return Value(index, shape, dtype, needs_gradient)
