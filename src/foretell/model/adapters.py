"""LoRA: the model with its weights frozen and a product of two thin matrices beside its dense layers.

Hu et al. 2021 (arXiv 2106.09685), section 4.1: y = W x becomes y = W x + s B A x with W frozen, A of
r x in, B of out x r, and a number s. Which layers: all dense ones of the layers that repeat, experts
included; not embeddings, norms, the head, nor what chooses experts (`all-linear` of PEFT, which
leaves the head out too); or some of them by name. An adapter runs as PEFT and torchtune write it: two
products, a scaling, a sum.

DoRA (Liu et al. 2024, arXiv 2402.09353), section 4: the columns of W + s B A have a length of 1 times a trained
magnitude. PEFT 0.21 (tuners/lora/dora.py) makes B A by sending an identity matrix through both, adds W, takes the
lengths, which have no gradient (section 4.3), and scales what the layer and its adapter made, both of which it keeps.
"""

from __future__ import annotations

import functools
from typing import Final, TypeAlias

import msgspec

from foretell.caches import forgettable
from foretell.model.dims import Dim, Dims
from foretell.model.fold import unfold
from foretell.model.frozen import BACKWARD, WIDE, FrozenWriter, dims_of, operand_of, settled
from foretell.model.graph import Block, Flat, Graph, Node, Operand
from foretell.model.layers import pieces
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul, TopK
from foretell.model.operators.layout import View
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.reduction import Reduce
from foretell.model.operators.softmax import Softmax
from foretell.units import product

THIN: Final = "adapter"
"""The dim between the two matrices of an adapter; its size is their rank."""

BASIS: Final = "basis"
"""The rows of an identity matrix that goes through both, to find their product."""

HALVES: Final = ("bf16", "fp16")
"""Types of weights beside which wide adapters are in another."""

SCORES: Final = (Elementwise, Softmax, View, Broadcast, Reduce)
"""What scores of experts go through before the best are chosen."""

MAGNITUDE: Final = "lora_magnitude_vector"

TARGETS: Final = {
    "query": ("query", "q_proj", "wq"),
    "key": ("key", "k_proj", "wk"),
    "value": ("value", "v_proj", "wv"),
    "output": ("output", "o_proj", "wo"),
    "attention": ("attention", "cross_attention", "self_attn", "self_attention", "attn"),
    "feed_forward": ("feed_forward", "mlp", "ffn", "block_sparse_moe", "moe"),
}
"""Words for some of the dense layers, and what modules call them: a part of their paths."""

EMBEDDINGS: Final = "embeddings"
"""The word for tables and a head that are trained beside adapters."""

Places: TypeAlias = frozenset[tuple[int, int]]
"""Operators, as (block, node)."""


@forgettable
@functools.lru_cache(maxsize=32)
def adapted(
    graph: Graph,
    rank: int,
    only: tuple[str, ...] = (),
    base: str = "",
    embeddings: bool = False,
    wide: bool = False,
    magnitudes: bool = False,
) -> Graph:
    """The model with adapters of this rank; `only` beside layers with these words in their paths.

    Weights that could have an adapter are kept in the form `base` (`quantized.FORMATS`), where one is given. `wide`:
    adapters are in fp32 whatever the weights are in. `magnitudes`: they are those of DoRA.
    """
    flat = unfold(graph.blocks)
    chosen = adaptable(graph, only)
    dense = adaptable(graph) if base else Places()
    whole = tables(graph) if embeddings else Places()
    writer = _AdapterWriter(flat, wide, magnitudes)
    at = 0
    repetitions: list[tuple[Block, int]] = []  # each repetition of each block, and where it ends
    for place, block in enumerate(graph.blocks):
        for _ in range(block.times if block.nodes else 0):
            for index in range(len(block.nodes)):
                writer.keep(flat.nodes[at], (place, index) in whole, base if (place, index) in dense else "")
                writer.add(flat.nodes[at], rank if (place, index) in chosen else 0)
                at += 1
            repetitions.append((block, len(writer.nodes)))
    return settled(graph, flat, writer.written, repetitions)


@forgettable
@functools.lru_cache(maxsize=32)
def adaptable(graph: Graph, only: tuple[str, ...] = ()) -> Places:
    """The dense layers that adapters stand beside."""
    return frozenset(
        (piece.block, index)
        for piece in pieces(graph)
        if piece.layer
        for index in range(piece.start, piece.stop)
        if _is_dense(graph, piece.block, graph.blocks[piece.block].nodes[index], only)
    )


@forgettable
@functools.lru_cache(maxsize=64)
def full_rank(graph: Graph) -> int:
    """The largest rank that a weight beside which an adapter stands can have: its smaller side."""
    nodes = (graph.blocks[block].nodes[index] for block, index in adaptable(graph))
    return max(
        (min(product(dim.size for dim in dims_of(node, side)) for side in ("in", "out")) for node in nodes), default=0
    )


def tables(graph: Graph) -> Places:
    """Embedding tables, and dense layers that are in no layer that repeats: the head."""
    return frozenset(
        (piece.block, index)
        for piece in pieces(graph)
        for index in range(piece.start, piece.stop)
        if isinstance(operator := graph.blocks[piece.block].nodes[index].operator, Embedding)
        or (isinstance(operator, Matmul) and not piece.layer)
    )


def _is_dense(graph: Graph, at: int, node: Node, only: tuple[str, ...]) -> bool:
    if not isinstance(node.operator, Matmul | GroupedMatmul) or dims_of(node, "batch"):
        return False
    if only and not {part for word in only for part in TARGETS.get(word, (word,))} & {*node.path.split(".")}:
        return False
    home, number, _ = graph.home(at, operand_of(node, "w"))
    if graph.blocks[home].tensors[number].role != "parameter":
        return False
    single = product(dim.size for dim in dims_of(node, "out")) == 1  # a gate of all of a feed-forward
    return not single and not _chooses(graph.blocks[at], node)


def _chooses(block: Block, node: Node) -> bool:
    """Whether a dense layer scores experts: the best of what it makes are chosen."""
    seen, left = set[int](), list(node.outputs)
    while left:
        number = left.pop()
        seen.add(number)
        for reader in block.nodes:
            if any(operand.tensor == number for operand in reader.inputs):
                if isinstance(reader.operator, TopK):
                    return True
                if isinstance(reader.operator, SCORES):
                    left += [output for output in reader.outputs if output not in seen]
    return False


class _AdapterWriter(FrozenWriter):
    """Writes the model down once more: its weights frozen, adapters after some of its operators."""

    def __init__(self, flat: Flat, wide: bool, magnitudes: bool) -> None:
        super().__init__(flat)
        self.wide, self.magnitudes = wide, magnitudes

    def keep(self, node: Node, trained: bool, base: str) -> None:
        """How the weight of an operator of the model is kept: trained as a whole, or frozen in another form."""
        if trained or base:
            number = operand_of(node, "w")
            if self.tensors[number].role == "parameter":
                self.tensors[number] = msgspec.structs.replace(self.tensors[number], trainable=trained, form=base)

    def add(self, node: Node, rank: int) -> None:
        """One operator of the model, with an adapter of this rank beside it (0: none)."""
        node = self.again(node)
        if rank:
            self._adapter(node, rank)

    def _adapter(self, node: Node, rank: int) -> None:
        thin = (Dim(THIN, rank),)
        rows, inner, out = (dims_of(node, name) for name in ("row", "in", "out"))
        y, x = node.outputs[0], operand_of(node, "x")
        frozen = self.tensors[y].dtype
        wider = self.wide and frozen in HALVES
        read = self.elementwise(node, "cast", {"x": x}, WIDE) if wider else x
        first, second = self._weight(node, "lora_a", read, inner, thin), self._weight(node, "lora_b", read, thin, out)
        low = self._product(node, read, first, inner, thin, rows + thin)
        high = self._product(node, low, second, thin, out, self.tensors[y].dims)
        made = y
        if self.magnitudes:
            factor = self._factor(node, first, second)
            less = self.elementwise(node, "scale", {"x": factor})
            plain = self.repeated(node, "add", y, {"w": operand_of(node, "b")}) if _has(node, "b") else y
            made = self.elementwise(node, "add", {"x": y, "z": self.repeated(node, "multiply", plain, {"z": less})})
            high = self.repeated(node, "multiply", high, {"z": factor})
        scaled = self.elementwise(node, "scale", {"x": high})
        total = self.elementwise(node, "add", {"x": made, "z": scaled}, WIDE if wider else "")
        self.instead(y, self.elementwise(node, "cast", {"x": total}, frozen) if wider else total)

    def _factor(self, node: Node, first: int, second: int) -> int:
        """DoRA's magnitude over the length of each column of the merged weight, made anew in each forward pass."""
        thin, inner, out = self.tensors[first].dims[:1], dims_of(node, "in"), dims_of(node, "out")
        dtype, weight = self.tensors[first].dtype, operand_of(node, "w")
        basis = (Dim(BASIS, product(dim.size for dim in inner)),)
        eye = self.node(node.path, Elementwise("fill"), {"item": basis + inner}, (), basis + inner, (), dtype, ())
        low = self._product(node, eye, first, inner, thin, basis + thin, gradients=())
        merged = self._product(node, low, second, thin, out, basis + out, gradients=())
        if self.tensors[weight].dtype != dtype or self.tensors[weight].form:
            weight = self.elementwise(node, "cast", {"x": weight}, dtype, ())
        merged = self.elementwise(node, "scale", {"x": merged}, "", ())
        merged = self.elementwise(node, "add", {"x": merged, "z": weight}, "", ())
        lengths = self.node(
            node.path, Reduce("norm"), {"kept": out, "reduced": basis}, (Operand("x", merged),), out, (), "", ()
        )
        magnitude = self.tensor(out, dtype, "parameter", f"{node.path}.{MAGNITUDE}.weight", trainable=True)
        return self.repeated(node, "multiply", lengths, {"w": magnitude})

    def _weight(self, node: Node, name: str, x: int, inner: Dims, out: Dims) -> int:
        """One of the two matrices of an adapter, stored as that of the layer itself is."""
        grouped = isinstance(node.operator, GroupedMatmul)
        dims = (*dims_of(node, "expert"), *inner, *out) if grouped else (*out, *inner)
        dtype = self.tensors[x if self.wide else operand_of(node, "w")].dtype
        return self.tensor(dims, dtype, "parameter", f"{node.path}.{name}.weight", trainable=True)

    def _product(
        self,
        node: Node,
        x: int,
        weight: int,
        inner: Dims,
        out: Dims,
        shape: Dims,
        gradients: tuple[str, ...] = BACKWARD,
    ) -> int:
        loops = {loop.name: loop.dims for loop in node.loops} | {"in": inner, "out": out}
        if not gradients:
            loops["row"] = shape[:1]
        others = [operand for operand in node.inputs if operand.name == "offsets"]
        inputs = (Operand("x", x), Operand("w", weight), *others)
        path = self.tensors[weight].name.rpartition(".")[0]
        keeps = (x, weight, *(o.tensor for o in others))
        return self.node(path, node.operator, loops, inputs, shape, keeps, "", gradients)


def _has(node: Node, name: str) -> bool:
    return any(operand.name == name for operand in node.inputs)
