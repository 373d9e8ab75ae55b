"""RMS norms of tokens as modules write them out in PyTorch, where no kernel does the whole of one.

Hugging Face's have their input cast to fp32, normed there, cast back, and multiplied with a weight (transformers 5,
models/llama/modeling_llama.py, LlamaRMSNorm). Autograd keeps the copy in fp32 and the normed values, and not the input.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.model.dims import Loop
from foretell.model.graph import Block, Node, Operand, Tensor
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.normalization import WRITTEN, Normalize

NARROW = ("bf16", "fp16")


def with_written_norms(block: Block) -> Block:
    """The block with its norms of tokens in 16 bits written out."""
    places = [index for index, node in enumerate(block.nodes) if _is_written(block, node)]
    if not places:
        return block
    first = len(block.tensors)
    block = _with_room(block, 2 * len(places))
    tensors, nodes = list(block.tensors[:first]), list[Node]()
    for index, node in enumerate(block.nodes):
        if index not in places:
            nodes.append(node)
            continue
        number = len(tensors)
        y = block.tensors[node.outputs[0]]
        tensors += [Tensor(y.dims, "fp32", number), Tensor(y.dims, y.dtype, number + 1)]
        nodes += _written(node, number, y)
    return msgspec.structs.replace(block, tensors=tuple(tensors), nodes=tuple(nodes))


def _is_written(block: Block, node: Node) -> bool:
    rms = isinstance(node.operator, Normalize) and node.operator.kind == "rms"
    has_weight = any(operand.name == "w" for operand in node.inputs)
    return rms and has_weight and block.tensors[node.outputs[0]].dtype in NARROW


def _with_room(block: Block, count: int) -> Block:
    """The block whose imports are numbered behind so many more tensors of its own."""
    own = len(block.tensors)

    def moved(number: int) -> int:
        return number + count if number >= own else number

    def at_place(node: Node) -> Node:
        return msgspec.structs.replace(
            node,
            inputs=tuple(Operand(operand.name, moved(operand.tensor)) for operand in node.inputs),
            outputs=tuple(map(moved, node.outputs)),
            keeps=tuple(map(moved, node.keeps)),
        )

    return msgspec.structs.replace(block, nodes=tuple(map(at_place, block.nodes)))


def _written(node: Node, number: int, y: Tensor) -> Iterator[Node]:
    """Cast, norm, and the product with the weight; tensors `number` and the next are what the first two make."""
    x, weight = (next(one for one in node.inputs if one.name == name) for name in ("x", "w"))
    loops = {loop.name: loop.dims for loop in node.loops}
    through = tuple(name for name in node.gradients if name == "input_gradient")
    deviations = tuple(kept for kept in node.keeps if kept not in (x.tensor, weight.tensor))
    yield msgspec.structs.replace(
        node,
        operator=Elementwise("cast"),
        loops=(Loop("item", y.dims),),
        inputs=(x,),
        outputs=(number,),
        keeps=(),
        gradients=through,
        gradient_sums=tuple(name for name in node.gradient_sums if name == "x"),
    )
    yield msgspec.structs.replace(
        node,
        operator=Normalize(WRITTEN),
        loops=tuple(loop for loop in node.loops if loop.name != "affine"),
        inputs=(Operand("x", number),),
        outputs=(number + 1,),
        keeps=(number, *deviations) if through else (),
        gradients=through,
        gradient_sums=(),
    )
    kept = {"weight_gradient": number + 1, "input_gradient": weight.tensor}
    yield msgspec.structs.replace(
        node,
        operator=Broadcast("multiply"),
        loops=(Loop("item", loops["member"]), Loop("repeat", loops["group"])),
        inputs=(Operand("x", number + 1), weight),
        keeps=tuple(kept[name] for name in node.gradients),
        gradient_sums=tuple(name for name in node.gradient_sums if name == "w"),
    )
