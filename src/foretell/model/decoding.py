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
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.recurrent import Recurrent
from foretell.model.operators.scan import Scan
from foretell.model.operators.selective_scan import SelectiveScan
from foretell.units import WIDTH, ceil_div

STATES: Final = (Scan, SelectiveScan, DeltaRule, Recurrent)
"""Operators whose state goes from token to token, whatever attention keeps beside it."""


class LayerCache(NamedTuple):
    """The cache of layers that are alike."""

    layers: int
    heads: int  # of keys and values; latents of all heads lie whole on each rank, as one
    head_bytes: int  # of one of them, for one token
    window: int  # tokens that it looks back on; 0: all
    products: int = 0  # multiply-adds of all heads with a token of it, where they may take longer than reading it

    def bytes(self, tokens: float, cut: int = 1) -> float:
        """Of a sequence of so many tokens, on one of `cut` ranks that share heads out; a head lies whole on a rank."""
        seen = min(tokens, self.window) if self.window else tokens
        return self.layers * ceil_div(self.heads, cut) * self.head_bytes * seen

    def flops(self, tokens: float, cut: int = 1) -> float:
        """Of reading a sequence of so many tokens, on one of `cut` ranks that share heads out."""
        seen = min(tokens, self.window) if self.window else tokens
        return 2 * self.layers * self.products / cut * seen


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
        latent = node.sizes()["qk"] != node.sizes()["value"]
        made.append(_latents(graph, block, node) if latent else _keys_and_values(graph, block, node, operator))
    return tuple(made)


def _keys_and_values(graph: Graph, block: Block, node: Node, operator: Attention) -> LayerCache:
    sizes = node.sizes()
    width = WIDTH[graph.tensor(block, _operand(node, "k")).dtype]
    size = round(sizes["qk"] + sizes["value"]) * width
    return LayerCache(block.times, round(sizes["kv_head"]), size, operator.window)


def _latents(graph: Graph, block: Block, node: Node) -> LayerCache:
    """Multi-head latent attention keeps what keys and values are made from, and the turning part of the key.

    DeepSeek-V2 (arXiv 2405.04434), section 2.1.2 and table 1: a token takes the latent vector and one turning key a
    layer. What makes keys and values of it is multiplied into queries and outputs instead, which takes as much for one
    token; then each head multiplies its query with the whole of it, and its weights with the latent.
    """
    sizes, v = node.sizes(), _operand(node, "v")
    storage = block.tensors[v].storage if v < len(block.tensors) else -1
    maker = next((one for one in block.nodes if storage in one.outputs and isinstance(one.operator, Matmul)), None)
    if maker is None or "index" in {operand.name for operand in node.inputs}:
        what = f"{graph.name} keeps something in place of keys and values, whose cache is not modelled"
        raise BadInput(what, where="MODEL", fix="a model without an index or latents of its own: deepseek-v3")
    heads = round(sizes["kv_head"] * sizes["share"])
    made = maker.sizes()
    latent = round(made["in"])
    turning = round(sizes["qk"] - (made["out"] / heads - sizes["value"]))
    width = WIDTH[graph.tensor(block, v).dtype]
    return LayerCache(block.times, 1, (latent + turning) * width, 0, heads * (2 * latent + turning))


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
