"""Prompts that are trained: rows of numbers before the tokens, or keys and values before those of each attention.

Prompt tuning (Lester et al. 2021, arXiv 2104.08691): the embeddings of the first tokens of each row are trained, and
nothing else. Prefix tuning (Li, Liang 2021, arXiv 2101.00190): each attention looks back on keys and values that are
trained; queries are those of the tokens alone. As PEFT 0.21 has them: peft_model.py puts prompts before the embeddings
of tokens; prefixes are a cache of keys and values that is there before, so that transformers joins it with those of the
tokens in each layer (cache_utils.py, DynamicLayer.update) and makes a mask, which leaves the kernels without one.
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from foretell.caches import forgettable
from foretell.model.dims import Dim, Dims, Loop
from foretell.model.fold import unfold
from foretell.model.frozen import BACKWARD, FrozenWriter, dims_of, operand_of, settled
from foretell.model.graph import Block, Flat, Graph, Node, Operand
from foretell.model.operators.attention import Attention
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.layout import Concatenate
from foretell.model.resize import SAMPLE

PROMPT: Final = "prompt"
"""The dim of tokens that nobody wrote."""

MASKED: Final = "efficient"
"""The kernel that PyTorch takes where a mask is given."""


@forgettable
@functools.lru_cache(maxsize=32)
def prompted(graph: Graph, tokens: int, prefix: bool = False) -> Graph:
    """The model frozen, with a prompt of so many tokens among those of each row, or a prefix in each attention."""
    flat = unfold(graph.blocks)
    writer = _PrefixWriter(flat, tokens) if prefix else _PromptWriter(flat, tokens)
    at = 0
    repetitions: list[tuple[Block, int]] = []
    for block in graph.blocks:
        for _ in range(block.times if block.nodes else 0):
            for _ in block.nodes:
                writer.add(flat.nodes[at])
                at += 1
            repetitions.append((block, len(writer.nodes)))
    return settled(graph, flat, writer.written, repetitions)


def takes_prefix(graph: Graph) -> bool:
    """Whether each attention could look back on a prefix: causal ones, and no other that goes from token to token."""
    found = [node.operator for block in graph.blocks for node in block.nodes if isinstance(node.operator, Attention)]
    return bool(found) and all(one.causal and not one.window and one.kernel == "flash" for one in found)


def takes_prompt(graph: Graph) -> bool:
    """Whether its rows begin with the embeddings of tokens."""
    return any(isinstance(node.operator, Embedding) for block in graph.blocks for node in block.nodes)


class _TrainedRows(FrozenWriter):
    """What both write: rows that are trained, the same for each sample."""

    def __init__(self, flat: Flat, tokens: int) -> None:
        super().__init__(flat)
        self.rows = Dim(PROMPT, tokens)

    def trained(self, node: Node, name: str, dtype: str, sample: Dims, dims: Dims) -> int:
        """A weight of these dims, laid out for each sample."""
        weight = self.tensor(dims, dtype, "parameter", f"{node.path}.{name}.weight", trainable=True)
        shape = (*sample, *dims)
        empty = self.node(node.path, Elementwise("fill"), {"item": shape}, (), shape, (), dtype, ())
        return self.repeated(node, "add", empty, {"w": weight})

    def joined(self, node: Node, first: int, second: int, dims: Dims) -> int:
        inputs = (Operand("x", second), Operand("x1", first))
        return self.node(node.path, Concatenate(), {"item": dims}, inputs, dims, (), "", BACKWARD[:1])


class _PromptWriter(_TrainedRows):
    """After the first embedding, whose output has a row for each token, some of which are the prompt's."""

    found = False

    def add(self, node: Node) -> None:
        node = self.again(node)
        if self.found or not isinstance(node.operator, Embedding):
            return
        self.found = True
        y = node.outputs[0]
        dims = self.tensors[y].dims
        sample = tuple(dim for dim in dims if dim.name == SAMPLE)
        rows = self.trained(node, "prompt_encoder", self.tensors[y].dtype, sample, (self.rows, dims[-1]))
        self.instead(y, self.joined(node, rows, y, dims))


class _PrefixWriter(_TrainedRows):
    """Before each attention."""

    def add(self, node: Node) -> None:
        if not isinstance(node.operator, Attention):
            self.again(node)
            return
        node = self._reading(node)
        key = dims_of(node, "key")
        longer = (Dim(key[0].name, key[0].size + self.rows.size), *key[1:])
        inputs = [self._operand(node, operand, key, longer) for operand in node.inputs]
        inputs.append(Operand("bias", self._bias(node, (*dims_of(node, "query"), *longer))))
        old = {operand.tensor for operand in node.inputs if operand.name in "kv"}
        new = {mine.tensor for mine in inputs if mine.name in ("k", "v", "bias")}
        operator = msgspec.structs.replace(node.operator, kernel=MASKED, causal=False, fixed_bias=True)
        self.nodes.append(
            msgspec.structs.replace(
                node,
                operator=operator,
                loops=tuple(Loop(one.name, longer) if one.name == "key" else one for one in node.loops),
                inputs=tuple(inputs),
                keeps=(*(number for number in node.keeps if number not in old), *new),
            )
        )

    def _operand(self, node: Node, operand: Operand, key: Dims, longer: Dims) -> Operand:
        """Keys and values with those of the prefix before them."""
        if operand.name not in ("k", "v"):
            return operand
        last = dims_of(node, "qk" if operand.name == "k" else "value")
        heads, sample = dims_of(node, "kv_head"), dims_of(node, "sample")
        dtype = self.tensors[operand.tensor].dtype
        rows = self.trained(node, f"prefix_{operand.name}", dtype, sample, (*heads, self.rows, *last))
        dims = (*sample, *heads, *longer, *last)
        return Operand(operand.name, self.joined(node, rows, operand.tensor, dims))

    def _bias(self, node: Node, dims: Dims) -> int:
        """The mask as numbers to add, which PyTorch makes anew of one of truths at every call. (That one is made once
        for all layers; here it is filled for each, so that every stage of a pipeline has its own.)"""
        shape = (*dims_of(node, "sample"), *dims)
        made = self.node(node.path, Elementwise("fill"), {"item": shape}, (), shape, (), "bool", ())
        dtype = self.tensors[operand_of(node, "q")].dtype
        return self.elementwise(node, "where", {"x": made}, dtype, ())
