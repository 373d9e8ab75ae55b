"""What a model needs and how far it can be split: the answer of `foretell analyze`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from foretell.model.convolution_methods import methods
from foretell.model.graph import Block, Graph, Node
from foretell.model.limits import limits
from foretell.model.matrices import kept_bytes, update_cost
from foretell.model.operator import NOTHING, OperatorPart
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.normalization import Normalize
from foretell.model.operators.unknown import Unknown
from foretell.model.optimizer import OPTIMIZERS, optimizer
from foretell.model.totals import saved_storages, totals
from foretell.model.work_depth import bounds, work_depth
from foretell.summary import Summarized
from foretell.units import show_bytes, show_count, show_flops

PROCESSORS = (1, 1_000, 1_000_000, 1_000_000_000)
"""Processor counts that the bounds on T_p are shown for."""


class AnalysisRow(msgspec.Struct, frozen=True):
    """One line of a table: a kind of operator, a block, or one operator."""

    name: str
    count: int  # operators, or repetitions of a block
    parameters: int
    forward_flops: int
    backward_flops: int
    vector_flops: int
    bytes_moved: int
    saved_bytes: int
    launches: int
    fused_launches: int
    work: int  # vertices of the work-depth graph, forward (Ben-Nun, Hoefler 2019, Table 4: y)
    depth: int  # its longest path, operators one after the other
    input_gradient_work: int  # of the gradient of what is read (dx)
    input_gradient_depth: int
    weight_gradient_work: int  # of the gradient of weights (dw)
    weight_gradient_depth: int


class Method(msgspec.Struct, frozen=True):
    """One way to compute the convolutions of a model, summed over them."""

    method: str
    layers: int  # convolutions it can be used for; the others stay direct
    work: int
    depth: int


class Analysis(Summarized, frozen=True):
    """Everything that is known about a model before any plan or cluster is."""

    model: str
    source: str
    fingerprint: str
    batch: int
    dtype: str  # of most parameters
    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    buffer_bytes: int
    forward_flops: int  # on matrix units; a multiply-add is 2
    backward_flops: int
    vector_flops: dict[str, int]  # everything else, by pass
    bytes_moved: dict[str, int]
    arithmetic_intensity: dict[str, float]  # flops per byte, by pass
    launches: dict[str, int]  # kernels of one step: eager, fused
    optimizers: dict[str, dict[str, int]]  # one update by each rule: flops, bytes moved, bytes of state
    saved_bytes: int
    saved_bytes_per_sample: float
    work: int
    depth: int
    average_parallelism: float
    step_work: int
    step_depth: int
    bounds: list[dict[str, float]]  # of T_p in units of one vertex, forward pass
    blocks: list[AnalysisRow]
    kinds: list[AnalysisRow]
    operators: list[AnalysisRow]
    convolution_methods: list[Method]
    limits: dict[str, int]
    limited_by: dict[str, str]
    warnings: list[str]

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,}, {self.dtype}"
        yield "parameters", f"{show_count(self.parameters)}, {show_bytes(self.parameter_bytes)}"
        yield "forward", show_flops(self.forward_flops)
        yield "backward", show_flops(self.backward_flops)
        yield "saved", f"{show_bytes(self.saved_bytes)} for the backward pass"


def analyze(graph: Graph) -> Analysis:
    """Sum up a graph."""
    total = totals(graph)
    forward, backward = total.forward, total.backward
    span, step = work_depth(graph), work_depth(graph, step=True)
    found = limits(graph)
    both = forward + backward
    return Analysis(
        model=graph.name,
        source=graph.source,
        fingerprint=graph.fingerprint,
        batch=graph.batch,
        dtype=_dtype(graph),
        parameters=total.parameters,
        trainable_parameters=total.trainable,
        parameter_bytes=total.parameter_bytes,
        buffer_bytes=total.buffer_bytes,
        forward_flops=forward.matrix,
        backward_flops=backward.matrix,
        vector_flops={"forward": forward.vector, "backward": backward.vector},
        bytes_moved={"forward": _moved(forward), "backward": _moved(backward)},
        arithmetic_intensity={
            "forward": _intensity(forward),
            "backward": _intensity(backward),
            "step": _intensity(both),
        },
        launches={"eager": both.launches, "fused": both.fused},
        optimizers={name: _update(graph, name) for name in OPTIMIZERS},
        saved_bytes=total.saved_bytes,
        saved_bytes_per_sample=total.saved_bytes / graph.batch,
        work=span.work,
        depth=span.depth,
        average_parallelism=span.parallelism,
        step_work=step.work,
        step_depth=step.depth,
        bounds=[_bound(p, span.work, span.depth) for p in PROCESSORS],
        blocks=_blocks(graph),
        kinds=_rows(graph, lambda _, node: _kind(node)),
        operators=_rows(graph, _place),
        convolution_methods=_methods(graph),
        limits={limit.way: limit.ranks for limit in found},
        limited_by={limit.way: limit.by or limit.rule for limit in found},
        warnings=list(graph.warnings),
    )


def _dtype(graph: Graph) -> str:
    """The element type that most parameters have."""
    count: Counter[str] = Counter()
    for block in graph.blocks:
        for tensor in block.tensors:
            if tensor.role == "parameter":
                count[tensor.dtype] += block.times * tensor.elements()
    return max(count, key=lambda dtype: count[dtype], default="fp32")


def _moved(part: OperatorPart) -> int:
    return part.read + part.written


def _intensity(part: OperatorPart) -> float:
    return (part.matrix + part.vector) / max(1, _moved(part))


def _update(graph: Graph, name: str) -> dict[str, int]:
    """One optimizer update of fp32 weights with fp32 states."""
    found = optimizer(name)
    part = update_cost(graph, found, dict.fromkeys("wgs", 4))
    states = round(kept_bytes(graph, found, master=0, width=4))
    return {"flops": round(part.matrix + part.vector), "bytes_moved": round(_moved(part)), "state_bytes": states}


def _bound(processors: int, work: int, depth: int) -> dict[str, float]:
    low, high = bounds(work, depth, processors)
    return {"processors": processors, "low": low, "high": high}


def _kind(node: Node) -> str:
    """The word a table has for an operator: its kind, and which one where that tells more."""
    operator = node.operator
    if isinstance(operator, Unknown):
        return operator.name
    if isinstance(operator, Normalize):
        return f"{operator.kind} norm"
    detail: str = getattr(operator, "function", "") or getattr(operator, "cell", "")
    words = detail if node.kind == "elementwise" else f"{node.kind} {detail}".strip()
    return words.replace("_", " ")


def _place(block: Block, node: Node) -> str:
    """A path that stands for all its repetitions, with what is done there: 'layers.#.up matmul'."""
    parts = node.path.split(".")
    if block.times > 1:
        parts[block.place] = f"[{parts[block.place]}+{block.stride}i]" if block.stride > 1 else "#"
    return f"{'.'.join(parts)} {_kind(node)}".strip()


@dataclass(slots=True)
class _Sum:
    """What one line of a table adds up."""

    count: int = 0
    parameters: int = 0
    forward: OperatorPart = NOTHING
    inputs: OperatorPart = NOTHING  # gradients of them
    weights: OperatorPart = NOTHING
    saved: int = 0

    def row(self, name: str, count: int | None = None) -> AnalysisRow:
        backward = self.inputs + self.weights
        both = self.forward + backward
        return AnalysisRow(
            name=name,
            count=self.count if count is None else count,
            parameters=self.parameters,
            forward_flops=self.forward.matrix,
            backward_flops=backward.matrix,
            vector_flops=both.vector,
            bytes_moved=_moved(both),
            saved_bytes=self.saved,
            launches=both.launches,
            fused_launches=both.fused,
            work=self.forward.work,
            depth=self.forward.depth,
            input_gradient_work=self.inputs.work,
            input_gradient_depth=self.inputs.depth,
            weight_gradient_work=self.weights.work,
            weight_gradient_depth=self.weights.depth,
        )


def _sums(graph: Graph, key: Callable[[Block, Node], Any]) -> dict[Any, _Sum]:
    """Costs grouped by a key. A weight or a kept storage counts with the first to use it."""
    sums: dict[Any, _Sum] = {}
    keys = [[key(block, node) for node in block.nodes] for block in graph.blocks]
    places = ((block, node, keys[at][n]) for at, block in enumerate(graph.blocks) for n, node in enumerate(block.nodes))
    for block, node, name in places:
        entry = sums.setdefault(name, _Sum())
        widths = graph.widths(block, node)
        entry.count += block.times
        entry.forward = entry.forward + node.cost("forward", widths) * block.times
        entry.inputs = entry.inputs + node.cost("input_gradient", widths) * block.times
        entry.weights = entry.weights + node.cost("weight_gradient", widths) * block.times
    for at, block in enumerate(graph.blocks):
        first_use: dict[int, Any] = {}
        for node, name in zip(block.nodes, keys[at], strict=True):
            for operand in node.inputs:
                first_use.setdefault(operand.tensor, name)
        for number, tensor in enumerate(block.tensors):
            if tensor.role == "parameter" and number in first_use:
                sums[first_use[number]].parameters += block.times * tensor.elements()
    for kept in saved_storages(graph):
        block, node = kept.keeper
        sums[keys[block][node]].saved += kept.times * kept.tensor.bytes()
    return sums


def _rows(graph: Graph, name: Callable[[Block, Node], str]) -> list[AnalysisRow]:
    """One row a name, in running order; views cost nothing and are left out."""
    named = _sums(graph, lambda block, node: "" if node.kind == "view" else name(block, node))
    return [entry.row(key) for key, entry in named.items() if key]


def _blocks(graph: Graph) -> list[AnalysisRow]:
    """One row a block, in running order."""
    places = {id(block): at for at, block in enumerate(graph.blocks)}
    sums = _sums(graph, lambda block, _: places[id(block)])
    named = [(graph.blocks[int(at)], entry) for at, entry in sums.items()]
    return [entry.row(block.name, block.times) for block, entry in named]


def _methods(graph: Graph) -> list[Method]:
    """The ways to compute the model's convolutions, work and depth summed over its layers."""
    layers: list[tuple[int, dict[str, tuple[Any, Any]]]] = [
        (block.times, methods(node.operator, node.sizes(), whole=True))
        for block, node in graph.nodes()
        if isinstance(node.operator, Convolution)
    ]
    if not layers:
        return []
    found: list[Method] = []
    for method in ("direct", "im2col", "fft", "winograd"):
        usable = sum(times for times, ways in layers if method in ways)
        if not usable:
            continue  # every layer would stay direct
        chosen = [(times, ways.get(method, ways["direct"])) for times, ways in layers]
        work = sum(times * way[0] for times, way in chosen)
        depth = sum(times * way[1] for times, way in chosen)
        found.append(Method(method, usable, work, depth))
    return found
