"""The model as data: operators over named dims, tensors with sizes, blocks that repeat.

A graph is the training step of one model on one batch, without any framework. It is stored
folded: eighty equal layers are one block taken eighty times. Everything is frozen and hashable,
and goes to JSON and back.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.model.dims import Dim, Loop, Split
from foretell.model.operator import NOTHING, PARTS, Operator, OperatorPart
from foretell.model.operators import any_operator
from foretell.units import WIDTH, Quantity, product, share

if TYPE_CHECKING:
    AnyOperator = Operator
else:
    AnyOperator = any_operator()  # what a graph read from JSON may hold


ROLES = ("activation", "input", "parameter", "buffer", "kept")


class Tensor(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An array of one type. A view has no memory of its own: `storage` is whose it uses."""

    dims: tuple[Dim, ...]
    dtype: str
    storage: int
    role: str = "activation"  # one of ROLES
    trainable: bool = False
    name: str = ""
    form: str = ""  # of a frozen weight in few bits (`quantized.FORMATS`); `dtype` is what products read

    def elements(self, split: Split | None = None) -> Quantity:
        return product(dim.local(split or {}) for dim in self.dims)

    def bytes(self, split: Split | None = None) -> Quantity:
        return self.elements(split) * WIDTH[self.dtype]


class Operand(msgspec.Struct, frozen=True, array_like=True):
    """A tensor in its place in an operator."""

    name: str
    tensor: int


class Node(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One operator at one place of the model."""

    path: str  # the module it belongs to
    operator: AnyOperator
    loops: tuple[Loop, ...]
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()  # tensors that autograd keeps for this operator's backward
    gradients: tuple[str, ...] = ()  # which backward parts run
    gradient_sums: tuple[str, ...] = ()  # operands read before: their gradient is added to another's

    @property
    def kind(self) -> str:
        return str(type(self.operator).__struct_config__.tag)

    def sizes(self, split: Split | None = None, loops: Split | None = None) -> dict[str, Quantity]:
        """Loop sizes as one rank sees them, when dims are split, or loops of this operator.

        A loop can be named by itself since two of them may walk over dims of one name: a square
        dense layer has hidden features `in` and `out`.
        """
        sizes = {loop.name: loop.local(split or {}) for loop in self.loops}
        return {name: share(size, loops[name]) if loops and name in loops else size for name, size in sizes.items()}

    def widths(self, tensors: Mapping[int, Tensor] | tuple[Tensor, ...]) -> dict[str, int]:
        """Bytes per element of each operand."""
        widths = {operand.name: WIDTH[tensors[operand.tensor].dtype] for operand in self.inputs}
        widths["y"] = WIDTH[tensors[self.outputs[0]].dtype]
        return widths

    def cost(
        self, part: str, widths: Mapping[str, Quantity], split: Split | None = None, loops: Split | None = None
    ) -> OperatorPart:
        """One part's cost; nothing for a gradient that nobody needs."""
        return self.cost_at(part, widths, self.sizes(split, loops))

    def cost_at(self, part: str, widths: Mapping[str, Quantity], sizes: Mapping[str, Quantity]) -> OperatorPart:
        """The same for given loop sizes."""
        if part != "forward" and part not in self.gradients:
            return NOTHING
        cost = self.operator.part(part, sizes, widths)
        for name in self.gradient_sums:
            if (name in self.operator.weight_operands) == (part == "weight_gradient") and part != "forward":
                elements = self.operator.elements(name, sizes)
                size = elements * widths[name]
                cost = cost + OperatorPart(vector=elements, read=2 * size, written=size, launches=1)
        return cost


class Flat(NamedTuple):
    """A graph with every repetition written out: tensors and operators in running order."""

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]


class Import(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tensor that a block uses but did not make.

    It is tensor `tensor` of repetition `repetition` of block `block`. A carried import is that
    only the first time; later repetitions see tensor `carried` of the repetition before.
    """

    block: int
    repetition: int
    tensor: int
    carried: int = -1


class Block(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Operators that run in a row, `times` times over.

    Tensor numbers inside a block count its own tensors first, its imports after them.
    Repetition r has the paths of the first with component `place` raised by r * `stride`.
    """

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    imports: tuple[Import, ...] = ()
    times: int = 1
    place: int = -1
    stride: int = 0

    @property
    def name(self) -> str:
        """The module path that the block stands for: 'layers.0..79', or the first and the last."""
        paths = [node.path.split(".") for node in self.nodes]
        if self.times > 1:
            first = min(int(path[self.place]) for path in paths)
            last = max(int(path[self.place]) for path in paths) + (self.times - 1) * self.stride
            prefix = ".".join(paths[0][: self.place])
            return f"{prefix}.{first}..{last}".lstrip(".")
        shared = [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*paths, strict=False))]
        if shared or not paths:
            return ".".join(shared)
        ends = [".".join(path[:2] if path[1:2] and path[1].isdigit() else path[:1]) for path in (paths[0], paths[-1])]
        return " to ".join(end or "(root)" for end in ends)


SCHEMA = 1
"""Raised whenever a reader of old graphs would misread new ones."""


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True, weakref=True):
    """A model's training step on one batch: its inputs as block 0, then blocks in running order."""

    name: str
    blocks: tuple[Block, ...]
    batch: int = 1
    warnings: tuple[str, ...] = ()
    source: str = ""
    schema: int = SCHEMA

    def nodes(self) -> Iterator[tuple[Block, Node]]:
        """Every distinct operator once, with its block (which knows how often it runs)."""
        for block in self.blocks:
            for node in block.nodes:
                yield block, node

    def tensor(self, block: Block, index: int) -> Tensor:
        """A tensor by its number inside a block, imports followed."""
        while index >= len(block.tensors):
            entry = block.imports[index - len(block.tensors)]
            block, index = self.blocks[entry.block], entry.tensor
        return block.tensors[index]

    def home(self, at: int, number: int, repetition: int = 0) -> tuple[int, int, int]:
        """Follow imports and views to the (block, tensor, repetition) that owns the memory of a block's tensor."""
        while True:
            block = self.blocks[at]
            if number < len(block.tensors):
                storage = block.tensors[number].storage
                if storage == number:
                    return at, number, repetition
                number = storage
                continue
            entry = block.imports[number - len(block.tensors)]
            if entry.carried >= 0 and repetition > 0:
                repetition, number = repetition - 1, entry.carried
            else:
                at, repetition, number = entry.block, entry.repetition, entry.tensor

    def widths(self, block: Block, node: Node) -> dict[str, int]:
        """Bytes per element of each operand of a node."""
        numbers = {operand.tensor for operand in node.inputs} | set(node.outputs)
        return node.widths({number: self.tensor(block, number) for number in numbers})

    def __hash__(self) -> int:
        return _digest(self).__hash__()

    @property
    def fingerprint(self) -> str:
        """A short name for exactly this graph, the same on every machine."""
        return _digest(self)[:16]

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes, where: str = "graph") -> Graph:
        try:
            graph = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            fix = "write it again with `foretell analyze MODEL --graph FILE`"
            raise BadInput(f"not a foretell graph: {problem}", where=where, fix=fix) from None
        check(graph, where)
        return graph


_DIGESTS: dict[int, tuple[weakref.ref[Graph], str]] = {}
"""Digests of graphs that are alive: writing one down to hash it takes longer than most questions about it."""


def _digest(graph: Graph) -> str:
    known = _DIGESTS.get(id(graph))
    if known is None or known[0]() is not graph:
        digest = hashlib.sha256(msgspec.json.encode(graph)).hexdigest()
        key = id(graph)
        known = weakref.ref(graph, lambda _: _DIGESTS.pop(key, None)), digest
        _DIGESTS[key] = known
    return known[1]


PRODUCTS = ("convolution", "matmul", "grouped_matmul", "recurrent", "recurrent_call")
"""Operators that have both x and w."""

MOST_OPERATORS = 1_000_000
"""Operators that a graph may have, repetitions counted: more is a slip, and would take minutes."""


LARGEST = 2**80
"""Elements of a tensor, or flops and bytes of an operator: no model has as many."""


def check(graph: Graph, where: str = "graph") -> None:
    """Refuse a graph whose numbers do not fit together (one read from a file may be anything)."""
    if graph.schema != SCHEMA:
        what = f"this graph has schema {graph.schema}; this foretell reads {SCHEMA}"
        raise BadInput(what, where=where, fix="write it again with `foretell analyze MODEL --graph FILE`")
    if graph.batch < 1 or not graph.blocks:
        raise BadInput(f"not a consistent graph: {len(graph.blocks)} blocks, a batch of {graph.batch}", where=where)
    for at, block in enumerate(graph.blocks):
        for wrong in _wrong_with(graph, at, block):
            raise BadInput(f"not a consistent graph: block {at}: {wrong}", where=where)
    operators = sum(block.times * (len(block.nodes) + len(block.tensors)) for block in graph.blocks)
    if operators > MOST_OPERATORS:
        raise BadInput(f"{operators:,} operators and tensors, more than {MOST_OPERATORS:,}", where=where)
    for block, node in graph.nodes():
        try:
            for part in PARTS:
                cost = node.cost(part, graph.widths(block, node))
                if not 0 <= cost.matrix + cost.vector + cost.read + cost.written <= LARGEST:
                    raise ValueError("work that no machine does")
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
            what = f"not a consistent graph: {node.path} {node.kind} cannot be priced: {problem!r}"
            raise BadInput(what, where=where) from None


def _wrong_with(graph: Graph, at: int, block: Block) -> Iterator[str]:
    known = len(block.tensors) + len(block.imports)
    if block.times < 1:
        yield f"it is taken {block.times} times"
    for entry in block.imports:
        if not 0 <= entry.block < at:
            yield f"it imports from block {entry.block}"
        elif not 0 <= entry.tensor < len(graph.blocks[entry.block].tensors):
            yield f"it imports tensor {entry.tensor}, which nobody makes"
        elif not 0 <= entry.repetition < graph.blocks[entry.block].times:
            yield f"it imports from repetition {entry.repetition}"
        if entry.carried >= len(block.tensors):
            yield f"it carries tensor {entry.carried}, which it does not make"
    for number, tensor in enumerate(block.tensors):
        if tensor.dtype not in WIDTH or tensor.role not in ROLES:
            yield f"tensor {number} has the type {tensor.dtype!r} and the role {tensor.role!r}"
        owner = tensor.storage
        if not 0 <= owner < known or (owner < len(block.tensors) and block.tensors[owner].storage != owner):
            yield f"tensor {number} lives in {owner}, which has no memory"
        if any(dim.size < 0 for dim in tensor.dims):
            yield f"a negative size in {tensor.name or tensor.dims}"
        elif tensor.elements() > LARGEST:
            yield f"tensor {number} has more than 2^80 elements"
    for node in block.nodes:
        numbers = [*node.outputs, *node.keeps, *(operand.tensor for operand in node.inputs)]
        if not node.outputs or not all(0 <= number < known for number in numbers):
            yield f"{node.path} names a tensor nobody makes"
        if node.kind in PRODUCTS and not {"x", "w"} <= {operand.name for operand in node.inputs}:
            yield f"{node.path} lacks an operand of its product"
        if not set(node.gradient_sums) <= set(node.operator.spans):
            yield f"{node.path} adds up gradients of {node.gradient_sums}"
        if not set(node.gradients) <= set(PARTS[1:]):
            yield f"{node.path} has parts {node.gradients}"
        parts = node.path.split(".")
        if block.times > 1 and not (0 <= block.place < len(parts) and parts[block.place].isdigit()):
            yield f"{node.path} has no index that could rise"
