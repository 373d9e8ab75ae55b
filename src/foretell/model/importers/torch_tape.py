# pyright: basic
"""What a trace writes down while it runs: tensors, operators, what autograd keeps.

The tape knows every tensor by identity and every memory by its storage. An output whose storage is
known is a view of it, or an in-place update. Nothing is named or numbered here; `torch_graph` does
that when the trace is over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from foretell.model.importers.torch_dims import Group, Layout, fresh, tie
from foretell.model.operator import Operator

DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
BY_WIDTH = {1: "fp8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def dtype_name(dtype: torch.dtype) -> str:
    """Our word for an element type; a rare one is called by its width."""
    return DTYPES.get(dtype) or BY_WIDTH[dtype.itemsize]


def next_step() -> int:
    """The number that autograd gives to the next step it makes."""
    return torch.autograd._get_sequence_nr()  # pyright: ignore[reportPrivateImportUsage]


def storage_of(tensor: torch.Tensor) -> int:
    """The same number for all tensors in one memory, as long as any of them lives."""
    return tensor.untyped_storage()._cdata


@dataclass(eq=False, slots=True)
class TracedTensor:
    """A tensor of the trace."""

    layout: Layout
    dtype: str
    owner: TracedTensor | None = None  # whose memory it uses; its own if none
    role: str = "activation"  # as in the graph; a constant is one that the module holds but does not own
    trainable: bool = False
    name: str = ""
    needs: bool = False  # a gradient flows into it

    @property
    def memory(self) -> TracedTensor:
        """The tensor whose memory it uses."""
        traced = self
        while traced.owner is not None:
            traced = traced.owner
        return traced

    @property
    def is_weight(self) -> bool:
        return self.memory.role == "parameter"


@dataclass(eq=False, slots=True)
class AutogradFunction:
    """One call of a user's autograd.Function: its operators run without autograd watching."""

    name: str
    sequence: int
    nodes: list[Recorded] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Recorded:
    """One operator of the trace."""

    path: str
    frame: int  # the module call that it ran in
    operator: Operator
    loops: dict[str, Group]
    inputs: dict[str, TracedTensor]
    outputs: list[TracedTensor]
    needs: tuple[str, ...] = ()  # operands that need a gradient
    sequence: int = -1  # autograd's number for it, -1 where it has none
    by_rule: bool = False  # the operator itself says what it keeps; else `kept` was seen
    counted: bool = False  # PyTorch's counter has a formula for it
    function: AutogradFunction | None = None
    kept: list[TracedTensor] = field(default_factory=list)


class ModuleCall(NamedTuple):
    """One call of a module."""

    caller: int  # the call that it was made in
    at: int  # how many operators there were before
    path: str


class Tape:
    """Everything seen so far."""

    def __init__(self) -> None:
        self.nodes: list[Recorded] = []
        self.unknown: dict[str, list[str]] = {}  # operators that nobody described, and where they ran
        self.asked: dict[str, list[str]] = {}  # who asked for a value that only data has, by what was answered
        self.notes: list[str] = []
        self.path = ""
        self.paused = 0
        self.step: int | None = None  # autograd's number for what is written down now, where it is known
        self.frame = 0  # the module call that is running
        self.calls: list[ModuleCall] = []  # every module call so far
        self.function: AutogradFunction | None = None
        self.functions: list[AutogradFunction] = []
        self.by_sequence: dict[int, Recorded] = {}
        self._of: dict[int, TracedTensor] = {}
        self._memory: dict[int, TracedTensor] = {}
        self._alive: list[torch.Tensor] = []  # so that no identity is used twice
        self._kept: list[tuple[int, torch.Tensor]] = []

    def outside(
        self, tensor: torch.Tensor, layout: Layout, role: str, name: str = "", trainable: bool = False
    ) -> TracedTensor:
        """A tensor that no operator of the trace makes."""
        traced = TracedTensor(layout, dtype_name(tensor.dtype), None, role, trainable, name, needs=tensor.requires_grad)
        self._remember(tensor, traced)
        return traced

    def of(self, tensor: torch.Tensor) -> TracedTensor:
        """What is known of a tensor; one that is new comes from outside."""
        traced = self._of.get(id(tensor))
        if traced is not None:
            return traced
        memory = self._memory.get(storage_of(tensor))
        if memory is None:
            layout = tuple(fresh(size) for size in tensor.shape)
            return self.outside(tensor, layout, "constant", "constant")
        if len(memory.layout) == tensor.dim() and memory.dtype == dtype_name(tensor.dtype):
            layout = memory.layout  # the same tensor under another identity (its detached self)
        else:
            layout = tuple(fresh(size) for size in tensor.shape)
        traced = TracedTensor(layout, dtype_name(tensor.dtype), memory, name=memory.name)
        self._remember(tensor, traced)
        return traced

    def layout(self, tensor: torch.Tensor) -> Layout:
        return self.of(tensor).layout

    def made(self, tensor: torch.Tensor, layout: Layout, needs: bool = False) -> TracedTensor:
        """The output of an operator: new memory, or that of a tensor it shares it with."""
        memory = self._memory.get(storage_of(tensor))
        traced = TracedTensor(layout, dtype_name(tensor.dtype), memory, needs=needs)
        self._remember(tensor, traced)
        return traced

    def _remember(self, tensor: torch.Tensor, traced: TracedTensor) -> None:
        self._of[id(tensor)] = traced
        self._memory.setdefault(storage_of(tensor), traced.memory)
        self._alive.append(tensor)

    def add(
        self,
        operator: Operator,
        loops: Mapping[str, Group],
        inputs: Mapping[str, torch.Tensor],
        outputs: Sequence[tuple[torch.Tensor, Layout]],
        *,
        by_rule: bool = False,
        counted: bool = False,
    ) -> Recorded:
        """Write one operator down."""
        operands = {name: self.of(tensor) for name, tensor in inputs.items()}
        sequence = self._sequence()
        needs = self._needs(inputs, operands, sequence)
        made = [self.made(tensor, layout, bool(needs)) for tensor, layout in outputs]
        node = Recorded(self.path, self.frame, operator, dict(loops), operands, made, needs)
        node.by_rule, node.counted, node.function = by_rule, counted, self.function
        if self.function is not None:
            self.function.nodes.append(node)
        if needs:
            node.sequence = sequence
            self.by_sequence.setdefault(sequence, node)
        self.nodes.append(node)
        return node

    def _needs(
        self, inputs: Mapping[str, torch.Tensor], operands: Mapping[str, TracedTensor], sequence: int
    ) -> tuple[str, ...]:
        """The operands that a gradient goes to."""
        if self.function is not None:  # autograd is off inside, so it follows from the operands
            return tuple(name for name, t in inputs.items() if t.requires_grad or operands[name].needs)
        if not torch.is_grad_enabled():
            return ()
        if self.step is None and sequence in self.by_sequence:
            return ()  # autograd made no step for it: it has no gradient (a comparison, a detached copy)
        return tuple(name for name, t in inputs.items() if t.requires_grad)

    def keep(self, tensor: torch.Tensor) -> None:
        """Autograd has put this tensor by, for the operator that it is working on."""
        self._kept.append((self._sequence(), tensor))
        self._alive.append(tensor)

    def _sequence(self) -> int:
        """Autograd's number for the step that is running."""
        if self.function is not None:
            return self.function.sequence
        return next_step() - 1 if self.step is None else self.step

    def assign_kept(self) -> None:
        """Give every kept tensor to its operator, each memory once."""
        sequences = sorted(self.by_sequence)
        for sequence, tensor in self._kept:
            at = bisect_right(sequences, sequence) - 1  # its own, or the last before that we know
            if at < 0:
                continue
            memory = self._memory.get(storage_of(tensor))
            if memory is None:  # made by no operator that we saw
                layout = tuple(fresh(size) for size in tensor.shape)
                memory = self.outside(tensor, layout, "kept")
            node, kept = _user(self.by_sequence[sequences[at]], memory)
            if all(kept.memory is not other.memory for other in node.kept):
                node.kept.append(kept)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing that runs in here is written down."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    @contextmanager
    def one_step(self, number: int) -> Iterator[None]:
        """What is written down in here belongs to one step of autograd."""
        before, self.step = self.step, number
        try:
            yield
        finally:
            self.step = before

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Operators written down in here belong to one call of an autograd.Function."""
        before = self.function
        if before is None:
            self.function = AutogradFunction(name, next_step())
            self.functions.append(self.function)
        try:
            yield
        finally:
            self.function = before


def _user(node: Recorded, memory: TracedTensor) -> tuple[Recorded, TracedTensor]:
    """The operator (of a function's, the first that uses this memory) and the tensor it knows it by."""
    for user in node.function.nodes if node.function else [node]:
        for traced in (*user.inputs.values(), *user.outputs):
            if traced.memory is memory:
                return user, traced
    return node, memory


def tie_layouts(here: Layout, there: Layout) -> None:
    """Two tensors of one shape have the same dims."""
    for a, b in zip(here, there, strict=False):
        tie(a, b)
