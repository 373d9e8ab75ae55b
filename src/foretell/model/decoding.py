"""A model that writes: one token of each sequence at a time, with the keys and values of those before in a cache.

What a step of decoding multiplies is a forward pass over one token of each sequence. Attention reads the cache once
and does next to nothing with it (two multiply-adds a query head and number), so that it is left out of the graph and
told as bytes: Pope et al. 2022 (efficiently scaling transformer inference, arXiv 2211.05102), section 2.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.model.dims import Loop
from foretell.model.graph import Block, Graph, Node, Operand
from foretell.model.operators.attention import Attention
from foretell.model.operators.delta_rule import DeltaRule
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.recurrent import Recurrent
from foretell.model.operators.scan import Scan
from foretell.model.operators.selective_scan import SelectiveScan
from foretell.units import WIDTH, ceil_div

STATES: Final = (Scan, SelectiveScan, DeltaRule, Recurrent)
"""Operators whose state goes from token to token, whatever attention keeps beside it."""


class LayerCache(NamedTuple):
    """The cache of layers that are alike."""

    layers: int
    heads: int  # of keys and values
    head_bytes: int  # of one of them, for one token
    window: int  # tokens that it looks back on; 0: all

    def bytes(self, tokens: float, cut: int = 1) -> float:
        """Of a sequence of so many tokens, on one of `cut` ranks that share heads out; a head lies whole on a rank."""
        seen = min(tokens, self.window) if self.window else tokens
        return self.layers * ceil_div(self.heads, cut) * self.head_bytes * seen


def caches(graph: Graph) -> tuple[LayerCache, ...]:
    """What every layer keeps of the tokens before."""
    states = {node.kind for block in graph.blocks for node in block.nodes if isinstance(node.operator, STATES)}
    if states:
        what = f"{graph.name} keeps states ({', '.join(sorted(states))}), which are not modelled as part of a cache"
        raise BadInput(what, where="MODEL", fix="a model with attention in all layers: llama3-8b")
    found = [
        (block, node, node.operator)
        for block in graph.blocks
        for node in block.nodes
        if isinstance(node.operator, Attention)
    ]
    if not found or any(not operator.causal for _, _, operator in found):
        what = f"{graph.name} writes no tokens: its attention is not causal, or it has none"
        raise BadInput(what, where="MODEL", fix="a decoder: llama3-8b")
    made: list[LayerCache] = []
    for block, node, operator in found:
        sizes = node.sizes()
        if sizes["qk"] != sizes["value"]:
            what = f"{graph.name} keeps latents in place of keys and values, whose cache is not modelled"
            raise BadInput(what, where="MODEL", fix="a model without multi-head latent attention: qwen3-30b-a3b")
        width = WIDTH[graph.tensor(block, _operand(node, "k")).dtype]
        size = round(sizes["qk"] + sizes["value"]) * width
        made.append(LayerCache(block.times, round(sizes["kv_head"]), size, operator.window))
    return tuple(made)


def decoding(graph: Graph) -> Graph:
    """The forward pass of a model without its attention, which what reads a cache stands for."""
    blocks = (
        msgspec.structs.replace(block, nodes=tuple(_beside_cache(block, node) for node in block.nodes))
        for block in graph.blocks
    )
    return msgspec.structs.replace(graph, blocks=tuple(blocks))


def _beside_cache(block: Block, node: Node) -> Node:
    if not isinstance(node.operator, Attention):
        return node
    shape = block.tensors[node.outputs[0]].dims
    inputs = (Operand("x", _operand(node, "q")),)
    return Node(node.path, Elementwise("copy"), (Loop("item", shape),), inputs, node.outputs)


def _operand(node: Node, name: str) -> int:
    return next(operand.tensor for operand in node.inputs if operand.name == name)
