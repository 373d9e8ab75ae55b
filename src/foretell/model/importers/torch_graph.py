# pyright: basic
"""From the tape of a trace to a graph: names read, tensors numbered, repeated blocks found."""

from __future__ import annotations

import torch

from foretell.model.dims import Dims, Loop
from foretell.model.fold import fold
from foretell.model.graph import Flat, Graph, Node, Operand, Tensor
from foretell.model.importers.torch_backward import parts
from foretell.model.importers.torch_dims import Atom, leaves, read
from foretell.model.importers.torch_paths import belong_to_layers
from foretell.model.importers.torch_repeats import LeftOut, lengthened, times_in_all
from foretell.model.importers.torch_tape import Recorded, Tape, TracedTensor
from foretell.model.operators.layout import View
from foretell.model.operators.matmul import Matmul


def graph_of(tape: Tape, module: torch.nn.Module, name: str, batch: int, left_out: tuple[LeftOut, ...] = ()) -> Graph:
    """The finished graph of everything on the tape, and of layers that were left out of it."""
    belong_to_layers(tape)
    nodes = _without_idle_views(_without_same_views(tape.nodes))
    nodes = [*_shared_views(nodes), *nodes]
    _call_features(nodes)
    flat = _Numbering(tape, module).flat(nodes)
    return Graph(name, lengthened(fold(flat), left_out), batch, _warnings(tape, left_out), "torch")


def _warnings(tape: Tape, left_out: tuple[LeftOut, ...]) -> tuple[str, ...]:
    found = list(tape.notes)
    for value, paths in tape.asked.items():
        places = list(dict.fromkeys(paths))
        others = sum(times_in_all(place, left_out) for place in places) - 1
        more = f" and {others} more" if others else ""
        found.append(f"{places[0]}{more} asked for the value of a tensor and was told {value}")
    if tape.unknown:
        counts = {name: sum(times_in_all(path, left_out) for path in paths) for name, paths in tape.unknown.items()}
        listed = ", ".join(f"{name} ({count}x)" for name, count in sorted(counts.items()))
        found.append(f"priced as memory-bound, since no operator describes them: {listed}")
    return tuple(found)


def _without_same_views(nodes: list[Recorded]) -> list[Recorded]:
    """Leave out views that change nothing but the grouping of dims: [sample * sequence, hidden]."""
    same: dict[int, TracedTensor] = {}
    found: list[Recorded] = []
    for node in nodes:
        node.inputs = {name: same.get(id(traced), traced) for name, traced in node.inputs.items()}
        node.kept = [same.get(id(traced), traced) for traced in node.kept]
        if isinstance(node.operator, View):
            source, output = node.inputs["x"], node.outputs[0]
            own = source.memory.role in (
                "activation",
                "input",
                "constant",
            )  # views of buffers are where layers share them
            if own and source.dtype == output.dtype and _atoms(source) == _atoms(output):
                same[id(output)] = source
                continue
        found.append(node)
    return found


def _atoms(traced: TracedTensor) -> list[Atom]:
    return [atom for atom in leaves(atom for group in traced.layout for atom in group) if atom.size != 1]


def _without_idle_views(nodes: list[Recorded]) -> list[Recorded]:
    """Leave out views that nobody reads; a product reads the weight behind a transposed view."""
    for node in nodes:
        for operand in ("w", "b"):
            used = node.inputs.get(operand)
            if used is not None and used.is_weight and used.owner is not None:
                node.inputs[operand] = used.owner
        node.kept = [traced.memory if traced.is_weight else traced for traced in node.kept]
    needed: set[int] = set()
    found: list[Recorded] = []
    for node in reversed(nodes):
        if isinstance(node.operator, View) and not any(id(output) in needed for output in node.outputs):
            continue
        needed.update(id(traced) for traced in (*node.inputs.values(), *node.kept))
        found.append(node)
    return found[::-1]


def _shared_views(nodes: list[Recorded]) -> list[Recorded]:
    """Views, ahead of all, of the weights and buffers that several layers share.

    A tensor belongs to the layer that first names it; so the first layer would be unlike the others.
    """
    users: dict[int, list[Recorded]] = {}
    weights: dict[int, TracedTensor] = {}
    for node in nodes:
        for traced in node.inputs.values():
            if traced.role in ("parameter", "buffer", "constant"):
                users.setdefault(id(traced), []).append(node)
                weights[id(traced)] = traced
    found: list[Recorded] = []
    for key, traced in weights.items():
        if not _across_layers([node.path for node in users[key]]):
            continue
        view = TracedTensor(traced.layout, traced.dtype, traced, needs=traced.needs)
        item = tuple(atom for group in traced.layout for atom in group)
        path = traced.name.rpartition(".")[0]
        found.append(Recorded(path, 0, View("alias"), {"item": item}, {"x": traced}, [view]))
        for node in users[key]:
            node.inputs = {name: view if used is traced else used for name, used in node.inputs.items()}
            node.kept = [view if kept is traced else kept for kept in node.kept]
    return found


def _across_layers(paths: list[str]) -> bool:
    """Whether the paths part at an index."""
    split = [path.split(".") for path in dict.fromkeys(paths)]
    for column in zip(*split, strict=False):
        if len(set(column)) > 1:
            return all(part.isdigit() for part in column)
    return False


def _call_features(nodes: list[Recorded]) -> None:
    """Name what only its neighbours explain: features between two layers that start and end hidden."""
    made: dict[int, list[Atom]] = {}
    for node in nodes:
        if isinstance(node.operator, Matmul) and node.inputs["w"].is_weight:
            out, inner = leaves(node.loops["out"]), leaves(node.loops["in"])
            if len(out) == 1 and len(inner) == 1 and inner[0].name == "hidden" and not out[0].name:
                made[id(out[0])] = out
    for node in nodes:
        if isinstance(node.operator, Matmul) and node.inputs["w"].is_weight:
            out, inner = leaves(node.loops["out"]), leaves(node.loops["in"])
            if len(out) == 1 and out[0].name == "hidden" and len(inner) == 1 and id(inner[0]) in made:
                inner[0].call("ffn", 1)


class _Numbering:
    """Gives tensors their numbers in the order in which they are met; a module's weights together."""

    def __init__(self, tape: Tape, module: torch.nn.Module) -> None:
        self._tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._siblings: dict[int, list[TracedTensor]] = {}
        self._weights: list[TracedTensor] = []
        self._read: set[int] = set()  # tensors that some operator sends a gradient back to
        for part in module.modules():
            own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
            traced = [tape.of(tensor) for tensor in own]
            self._weights.extend(traced)
            for each in traced:
                self._siblings.setdefault(id(each), traced)

    def flat(self, nodes: list[Recorded]) -> Flat:
        inputs = {id(t): t for node in nodes for t in node.inputs.values() if t.memory.role == "input"}
        for traced in inputs.values():
            self._number(traced)
        found = [self._node(node) for node in nodes]
        for traced in self._weights:
            self._number(traced)
        return Flat(tuple(self._tensors), tuple(found))

    def _number(self, traced: TracedTensor) -> int:
        known = self._numbers.get(id(traced))
        if known is not None:
            return known
        for sibling in self._siblings.get(id(traced), (traced,)):
            if id(sibling) not in self._numbers:
                self._add(sibling)
        return self._numbers[id(traced)]

    def _add(self, traced: TracedTensor) -> None:
        storage = self._number(traced.owner) if traced.owner is not None else len(self._tensors)
        dims = read(atom for group in traced.layout for atom in group)
        self._numbers[id(traced)] = len(self._tensors)
        role = "activation" if traced.role == "constant" else traced.role
        self._tensors.append(Tensor(dims, traced.dtype, storage, role, traced.trainable, traced.name))

    def _node(self, node: Recorded) -> Node:
        taken: set[str] = set()
        loops = {name: _loop(group, taken) for name, group in node.loops.items()}
        inputs = tuple(Operand(name, self._number(traced)) for name, traced in node.inputs.items())
        outputs = tuple(self._number(traced) for traced in node.outputs)
        keeps = self._by_rule(node, loops) if node.by_rule else [self._number(traced) for traced in node.kept]
        return Node(
            path=node.path,
            operator=node.operator,
            loops=tuple(Loop(name, dims) for name, dims in loops.items()),
            inputs=inputs,
            outputs=outputs,
            keeps=tuple(dict.fromkeys(keeps)),
            gradients=tuple(parts(node)),
            gradient_sums=self._gradient_sums(node),
        )

    def _gradient_sums(self, node: Recorded) -> tuple[str, ...]:
        """Operands that an earlier operator sends a gradient to as well (as the builder has it)."""
        if node.operator == View("slice"):
            return ()
        needy = {name: id(node.inputs[name]) for name in node.needs}
        again = tuple(name for name, traced in needy.items() if traced in self._read and name in node.operator.spans)
        self._read.update(needy.values())
        return again

    def _by_rule(self, node: Recorded, loops: dict[str, Dims]) -> list[int]:
        """What an operator says that it keeps, as the builder has it."""
        found: list[int] = []
        extras = node.operator.extras()
        for name in node.operator.keeps(node.needs) if node.needs else ():
            if name == "y":
                found.append(self._number(node.outputs[0]))
            elif name in node.inputs:
                found.append(self._number(node.inputs[name]))
            elif name in extras:
                over, kind = extras[name]
                dims = tuple(dim for loop in over for dim in loops[loop])
                dtype = next(iter(node.inputs.values())).dtype if kind == "same" else kind
                found.append(len(self._tensors))
                self._tensors.append(Tensor(dims, dtype, len(self._tensors), "kept", name=name))
        return found


def _loop(group: tuple[Atom, ...], taken: set[str]) -> Dims:
    """The dims of a loop. One name may come in two loops (features in, features out), but not sequence."""
    dims = read(group, taken)
    taken.intersection_update({"sequence", "key"})
    return dims
