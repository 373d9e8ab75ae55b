"""How one axis of the mesh spreads over a model: which loops each operator divides, where tensors are.

One rule serves all strategies. Shares of a dim arrive with the inputs or are made by operators that
have weights; an operator divides the loops over what arrives, needs its operands accordingly, and
leaves its output in shares or as summands. Each time a tensor is needed elsewhere than it is, there
is a change of placement, with its mirror image in the backward pass. What travels in a change is
not decided here (see `transition.py`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from foretell.model.dims import Dims
from foretell.model.graph import Block, Graph, Node, Tensor
from foretell.model.operator import Need
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import SPACE, Convolution
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.layout import View
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.normalization import Normalize
from foretell.model.operators.unknown import Unknown
from foretell.plan.placement import PARTIAL, REPLICATED, Partial, Placement, Replicated, Rotating, Routed, Sharded
from foretell.plan.strategy import MeshAxis
from foretell.program.alignment import Place, align, divisible, seen_through, size_at
from foretell.program.parts import members
from foretell.units import FLOATING, ceil_div

WEIGHTED = (Matmul, Convolution, GroupedMatmul)
"""Operators whose weights can be divided by outputs or inputs."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """What a trainer does its own way when it divides layers.

    each_consumer   the gradient of a whole tensor that several divided layers read is summed over ranks
                    once for each of them (PyTorch's DTensor), not once for all (fused layers)
    gather_again    a tensor gathered for a layer is not kept but gathered again for its weight gradient
    synchronised    batch norm takes its statistics over all ranks
    gathers_logits  the loss wants all classes of a row
    """

    each_consumer: bool = False
    gather_again: bool = False
    synchronised: bool = False
    gathers_logits: bool = False


USUAL = Conventions()


@dataclass(frozen=True, slots=True)
class Change:
    """A tensor that must get from one placement to another, before or after one operator."""

    block: int
    node: int
    tensor: int
    phase: str  # forward, backward
    after: bool  # of an output, after the operator ran forward; else of an operand
    source: Placement
    target: Placement
    gradient: bool = False  # of the tensor's gradient, not of its value


@dataclass(frozen=True, slots=True)
class Statistic:
    """A small reduction inside an operator whose loop is divided, over the elements of `loops`."""

    block: int
    node: int
    phase: str
    loops: tuple[str, ...]
    values: int  # numbers for each element


@dataclass(frozen=True)
class Spread:
    """One axis over the whole model."""

    axis: MeshAxis
    places: dict[tuple[int, int], tuple[Place, ...]]  # (block, node) to the places that are divided
    placed: dict[tuple[int, int], Placement]  # (block, tensor) to where it rests
    changes: tuple[Change, ...]
    statistics: tuple[Statistic, ...]
    gradients: dict[tuple[int, int], Placement]  # of weights, at the end of the backward pass
    whole: tuple[tuple[str, str], ...]  # operators that every rank does all of, and why


@functools.lru_cache(maxsize=512)
def spread(graph: Graph, axis: MeshAxis, conventions: Conventions = USUAL) -> Spread:
    """Follow one axis through the model."""
    walk = _Walk(graph, axis, conventions)
    for at in range(len(graph.blocks)):
        walk.enter(at)
    for at in reversed(range(len(graph.blocks))):
        walk.leave(at)
    return walk.result()


def owner(graph: Graph, at: int, number: int) -> tuple[int, int]:
    """Follow imports to the (block, tensor) that a number means the first time."""
    while number >= len(graph.blocks[at].tensors):
        entry = graph.blocks[at].imports[number - len(graph.blocks[at].tensors)]
        at, number = entry.block, entry.tensor
    return at, number


def storage_owner(graph: Graph, at: int, number: int) -> tuple[int, int]:
    """Follow imports and views to the (block, tensor) whose memory it is."""
    while True:
        at, number = owner(graph, at, number)
        storage = graph.blocks[at].tensors[number].storage
        if storage == number:
            return at, number
        number = storage


@dataclass
class _Decision:
    """What an operator does along the axis."""

    places: tuple[Place, ...] = ()
    needs: dict[str, Placement] = field(default_factory=dict[str, Placement])  # operands with a need of their own
    gives: Placement | None = None  # the output's placement, where it does not follow from the places
    reason: str = ""  # why it is not divided


class _Walk:
    """The state while one axis is followed through the blocks, forward and then back."""

    def __init__(self, graph: Graph, axis: MeshAxis, conventions: Conventions) -> None:
        self.graph, self.axis, self.rule, self.conventions = graph, axis, axis.splitting, conventions
        self.members = members(graph, axis.splitting.only)
        self.places: dict[tuple[int, int], tuple[Place, ...]] = {}
        self.placed: dict[tuple[int, int], Placement] = {}
        self.rested: dict[tuple[int, int], Placement] = {}  # outputs before they were settled
        self.needed: dict[tuple[int, int], dict[str, Placement]] = {}  # (block, node) to operands
        self.changes: dict[int, list[Change]] = {}
        self.statistics: dict[int, list[Statistic]] = {}
        self.backward: list[Change] = []
        self.gradients: dict[tuple[int, int], Placement] = {}
        self.constant: set[tuple[int, int]] = set()
        self.summed: dict[tuple[int, int], Placement] = {}  # gradients of constants while walking back
        self.whole: dict[str, str] = {}
        self.differentiable = {
            (at, number)
            for at, block in enumerate(graph.blocks)
            for node in block.nodes
            if node.gradients
            for number in node.outputs
        }

    # forward

    def enter(self, at: int) -> None:
        """Walk a block; once more where what it hands to its next repetition differs from what it got."""
        block = self.graph.blocks[at]
        carried = {number: entry.carried for number, entry in enumerate(block.imports) if entry.carried >= 0}
        entering: dict[int, Placement] = {}
        for _ in range(3):
            self._block(at, block, entering)
            found = {len(block.tensors) + n: self.placed[at, t] for n, t in carried.items()}
            if all(self._arriving(at, number, entering) == where for number, where in found.items()):
                return
            entering = found

    def _arriving(self, at: int, number: int, entering: dict[int, Placement]) -> Placement:
        return entering[number] if number in entering else self.placed[owner(self.graph, at, number)]

    def _block(self, at: int, block: Block, entering: dict[int, Placement]) -> None:
        self.changes[at], self.statistics[at] = [], []
        made = {number for node in block.nodes for number in node.outputs}
        for number, tensor in enumerate(block.tensors):
            if number not in made and tensor.role != "kept":
                self.placed[at, number] = self._given(tensor)
                if tensor.role in ("parameter", "buffer"):
                    self.constant.add((at, number))
        here = {n: self._arriving(at, n, entering) for n in range(len(block.tensors), self._known(block))}
        ready: set[tuple[int, Placement]] = set()  # tensors that are already also elsewhere
        for index, node in enumerate(block.nodes):
            arriving = {o.name: here.get(o.tensor) or self.placed[at, o.tensor] for o in node.inputs}
            decision = self._decide(at, block, index, node, arriving)
            self.places[at, index] = decision.places
            needs = {o.name: self._need(at, node, o.name, o.tensor, decision) for o in node.inputs}
            self.needed[at, index] = needs
            for operand in node.inputs:
                self._want(at, index, operand.tensor, arriving[operand.name], needs[operand.name], ready)
            self._outputs(at, block, index, node, decision)
            if all(owner(self.graph, at, o.tensor) in self.constant for o in node.inputs):
                self.constant.update((at, number) for number in node.outputs)
            self._small_sums(at, index, node, decision)
            if not decision.places and decision.reason:
                self.whole[node.path] = f"{node.kind}: {decision.reason}"

    @staticmethod
    def _known(block: Block) -> int:
        return len(block.tensors) + len(block.imports)

    def _given(self, tensor: Tensor) -> Placement:
        """Where a tensor is that no operator made. Weights are stored as they are used: see `_need`."""
        dim = self._dim(tensor) if tensor.role == "input" else None
        return REPLICATED if dim is None or tensor.dims[dim].size < self.axis.ranks else Sharded(dim)

    def _dim(self, tensor: Tensor) -> int | None:
        """The dim that the axis takes shares of, by its place in this tensor."""
        names = [dim.name for dim in tensor.dims]
        if self.rule.dim.startswith("extent "):
            space = [at for at, name in enumerate(names) if name in SPACE]
            at = int(self.rule.dim.removeprefix("extent "))
            return space[at] if at < len(space) else None
        return names.index(self.rule.dim) if self.rule.dim in names else None

    def _want(
        self, at: int, node: int, number: int, source: Placement, target: Placement, ready: set[tuple[int, Placement]]
    ) -> None:
        """Note the change that brings an operand where it is needed, once for each place."""
        home = owner(self.graph, at, number)
        tensor = self.graph.blocks[home[0]].tensors[home[1]]
        if tensor.role in ("parameter", "buffer") and home in self.constant:
            self.placed[home] = target  # weights lie where they are used
            return
        if source != target and (number, target) not in ready:
            ready.add((number, target))
            self.changes[at].append(Change(at, node, number, "forward", False, source, target))

    # what an operator does

    def _decide(self, at: int, block: Block, index: int, node: Node, arriving: dict[str, Placement]) -> _Decision:
        inside = self.members is None or (at, index) in self.members
        if isinstance(node.operator, CrossEntropy) and self.rule.weighted and self.conventions.gathers_logits:
            return _Decision()
        if isinstance(node.operator, GroupedMatmul) and self.rule.experts == "divide":
            return self._experts(node, arriving["x"])
        if inside and self.rule.weighted and not (isinstance(node.operator, GroupedMatmul) and self.rule.experts):
            found = self._weighted(at, block, node, arriving)
            if found.places:
                return found
            return replace(self._follow(at, block, node, arriving), reason=found.reason)
        if not inside and self.rule.dim:
            return _Decision()  # outside the part that is divided
        if isinstance(node.operator, Attention) and self.rule.attention:
            found = self._attention(at, node, arriving)
            if found.places:
                return found
        return self._follow(at, block, node, arriving)

    def _experts(self, node: Node, arriving: Placement) -> _Decision:
        """Each rank has some experts, and the rows that belong to them; they come back to where they were."""
        even = (at for at, dim in enumerate(_loop(node, "row")) if dim.size % self.axis.ranks == 0)
        row = arriving.dim if isinstance(arriving, Sharded | Routed) else next(even, None)
        if row is None or row >= len(_loop(node, "row")) or _loop(node, "expert")[0].size % self.axis.ranks:
            return _Decision(reason=f"{self.axis.ranks} ranks do not divide its experts and rows")
        places = (Place("expert", 0), Place("row", row))
        return _Decision(places, {"x": Routed(row), "w": Sharded(0), "offsets": REPLICATED}, Routed(row))

    def _weighted(self, at: int, block: Block, node: Node, arriving: dict[str, Placement]) -> _Decision:
        """Divide the inputs or the outputs of an operator that has weights."""
        if isinstance(node.operator, Embedding) and self.rule.flows and _has_weight(self.graph, at, node):
            if all(dim.name != "sample" for dim in _loop(node, "row")):
                return _Decision(reason="its rows do not depend on the samples")
            place = divisible(node, (Place("vocab", 0),), self.axis.ranks)
            return _Decision((place,)) if place else _Decision(reason="its table has fewer rows than ranks")
        if not isinstance(node.operator, WEIGHTED) or not _has_weight(self.graph, at, node):
            return _Decision()
        for loop in self.rule.weighted:
            place = self._inputs(at, node, arriving) if loop == "in" else self._outputs_of(at, block, node)
            if isinstance(place, Place):
                return _Decision((place,))
            if loop == self.rule.weighted[-1]:
                return _Decision(reason=place)
        return _Decision()

    def _inputs(self, at: int, node: Node, arriving: dict[str, Placement]) -> Place | str:
        places = tuple(Place("in", position) for position in range(len(_loop(node, "in"))))
        if self.rule.flows:
            x = arriving["x"]
            if not isinstance(x, Sharded):
                return "its input arrives whole"
            walks = align(node, "x", self._tensor(at, node, "x").dims)[x.dim]
            return divisible(node, tuple(p for p in walks if p.loop == "in"), self.axis.ranks) or "not its input's dim"
        home = storage_owner(self.graph, at, _operand(node, "x"))
        if self.graph.blocks[home[0]].tensors[home[1]].role == "input":
            return "it reads the data itself"
        fewest = min(dim.size for dim in _loop(node, "in"))
        return divisible(node, places, self.axis.ranks) or f"{self.axis.ranks} ranks do not divide {fewest} inputs"

    def _outputs_of(self, at: int, block: Block, node: Node) -> Place | str:
        for position in range(len(_loop(node, "out"))):
            place = divisible(node, (Place("out", position),), self.axis.ranks)
            if place is None:
                continue
            if not self.rule.flows:
                return place
            y = block.tensors[node.outputs[0]].dims
            dim = next((d for d, walks in enumerate(align(node, "y", y)) if place in walks), None)
            if dim is not None and _Ahead(self.graph, at, self.axis.ranks).good(node.outputs[0], dim):
                return place
            return "its output is needed whole"
        return f"{self.axis.ranks} ranks do not divide its outputs"

    def _attention(self, at: int, node: Node, arriving: dict[str, Placement]) -> _Decision:
        """Attention whose positions are in shares: rotate keys and values, or divide heads instead."""
        query = arriving["q"]
        if not isinstance(query, Sharded):
            return _Decision()
        walks = align(node, "q", self._tensor(at, node, "q").dims)[query.dim]
        if not any(place.loop == "query" for place in walks):
            return _Decision()
        if self.rule.attention == "heads":
            place = divisible(node, (Place("kv_head", 0), Place("share", 0)), self.axis.ranks)
            return _Decision((place,)) if place else _Decision()
        needs: dict[str, Placement] = {}
        for name in ("k", "v"):
            dims = self._tensor(at, node, name).dims
            walked = align(node, name, dims)
            needs[name] = Rotating(next(d for d, w in enumerate(walked) if any(p.loop == "key" for p in w)))
        return _Decision((Place("query", 0),), needs)

    def _follow(self, at: int, block: Block, node: Node, arriving: dict[str, Placement]) -> _Decision:
        """Divide the loops over the shares that arrive."""
        if isinstance(node.operator, View):
            return self._view(at, block, node, arriving["x"])
        routed = [where for where in arriving.values() if isinstance(where, Routed)]
        if routed and all(isinstance(w, Routed) for w in arriving.values()):
            return self._routed(at, node, arriving)
        chosen: list[Place] = []
        for operand in node.inputs:
            where = arriving[operand.name]
            if isinstance(where, Routed):
                where = Sharded(where.dim)  # the rows come back to where they were
            if not isinstance(where, Sharded):
                continue
            dims = self._tensor(at, node, operand.name).dims
            place = divisible(node, align(node, operand.name, dims)[where.dim], self.axis.ranks)
            if place is None or place in chosen:
                continue
            if self._splittable(node, place) and self._fits(at, node, (*chosen, place)):
                chosen.append(place)
        chosen += [place for place in _together(node, chosen) if place not in chosen]
        reason = ""
        if not chosen and any(isinstance(where, Sharded | Routed) for where in arriving.values()):
            reason = "no rule says how its loops can be divided"
        return _Decision(tuple(chosen), reason=reason)

    def _routed(self, at: int, node: Node, arriving: dict[str, Placement]) -> _Decision:
        places: dict[Place, None] = {}
        for operand in node.inputs:
            where = arriving[operand.name]
            assert isinstance(where, Routed)
            walks = align(node, operand.name, self._tensor(at, node, operand.name).dims)[where.dim]
            places.update(dict.fromkeys(walks[:1]))
        first = next(iter(arriving.values()))
        return _Decision(tuple(places), dict(arriving), first)

    def _view(self, at: int, block: Block, node: Node, where: Placement) -> _Decision:
        if not isinstance(where, Sharded | Routed):
            return _Decision()
        source, target = self._tensor(at, node, "x").dims, block.tensors[node.outputs[0]].dims
        dims = seen_through(node, source, target, where.dim, self.axis.ranks)
        if self.rule.flows and len(dims) > 1:
            ahead = _Ahead(self.graph, at, self.axis.ranks)
            dims = tuple(dim for dim in dims if ahead.good(node.outputs[0], dim)) or dims
        if dims:
            return _Decision((Place("item", dims[0]),), {"x": where}, type(where)(dims[0]))
        if isinstance(node.operator, View) and node.operator.function == "slice":
            return _Decision((Place("", 0),), {"x": where}, PARTIAL)  # the rank that has it, has it
        return _Decision(reason="its dims do not show the share")

    def _splittable(self, node: Node, place: Place) -> bool:
        need = node.operator.need(place.loop)
        if isinstance(node.operator, Unknown) or need in (Need.SEQUENTIAL, Need.WHOLE, Need.GATHER):
            return False
        weighted = isinstance(node.operator, WEIGHTED) and place.loop == "in" and not self.rule.flows
        return not (weighted and _loop(node, "out"))  # only strategies of layers divide their inputs

    def _fits(self, at: int, node: Node, places: tuple[Place, ...]) -> bool:
        """No operand and no output may have two dims in shares along one axis."""
        operands = [(o.name, self._tensor(at, node, o.name).dims) for o in node.inputs]
        operands.append(("y", self.graph.blocks[at].tensors[node.outputs[0]].dims))
        return all(sum(any(p in places for p in walks) for walks in align(node, n, d)) <= 1 for n, d in operands)

    # where operands are needed and outputs are

    def _need(self, at: int, node: Node, name: str, number: int, decision: _Decision) -> Placement:
        if name in decision.needs:
            return decision.needs[name]
        tensor = self.graph.tensor(self.graph.blocks[at], number)
        for dim, walks in enumerate(align(node, name, tensor.dims)):
            for place in walks:
                if place in decision.places:
                    return Sharded(dim, self._halo(node, name, place))
        return REPLICATED

    def _halo(self, node: Node, name: str, place: Place) -> tuple[int, int]:
        return node.operator.halo(place.loop) if name == "x" and place.loop in SPACE else (0, 0)

    def _outputs(self, at: int, block: Block, index: int, node: Node, decision: _Decision) -> None:
        for number in node.outputs:
            made = self._made(block.tensors[number], node, decision)
            rest = self._settled(block.tensors[number], node, decision, made)
            self.placed[at, number], self.rested[at, number] = rest, made
            if made != rest:
                self.changes[at].append(Change(at, index, number, "forward", True, made, rest))

    def _made(self, tensor: Tensor, node: Node, decision: _Decision) -> Placement:
        if decision.gives is not None and not isinstance(decision.gives, Partial):
            return decision.gives
        if isinstance(decision.gives, Partial):
            return PARTIAL
        for dim, walks in enumerate(align(node, "y", tensor.dims)):
            if any(place in decision.places for place in walks):
                return Sharded(dim)
        needs = {node.operator.need(place.loop) for place in decision.places}
        return PARTIAL if Need.SUM in needs else REPLICATED

    def _settled(self, tensor: Tensor, node: Node, decision: _Decision, made: Placement) -> Placement:
        """Where an output goes at once: summands are added up, shares that may not go on are joined."""
        between = next((at for at, dim in enumerate(tensor.dims) if dim.name == self.rule.between), None)
        home = self._dim(tensor)
        if isinstance(made, Partial):
            if not tensor.dims:
                return made  # a loss: nobody asks for the sum within a step
            return REPLICATED if between is None else Sharded(between)
        weighted = self.rule.weighted and isinstance(node.operator, WEIGHTED)
        if isinstance(made, Sharded) and weighted and not self.rule.flows and decision.places[0].loop in ("in", "out"):
            return REPLICATED
        if isinstance(made, Sharded) and isinstance(node.operator, Attention) and self.rule.attention == "heads":
            return made if home is None else Sharded(home)
        return made

    def _small_sums(self, at: int, index: int, node: Node, decision: _Decision) -> None:
        for place in decision.places:
            if not place.loop or node.operator.need(place.loop) is not Need.STATISTICS:
                continue
            batch = isinstance(node.operator, Normalize) and node.operator.kind == "batch"
            if batch and not self.conventions.synchronised:
                continue
            for phase, loops, values in node.operator.statistics(place.loop):
                if phase == "forward" or node.gradients:
                    self.statistics[at].append(Statistic(at, index, phase, loops, values))

    # backward

    def leave(self, at: int) -> None:
        """Walk a block back: where gradients arrive, and where they are needed."""
        block = self.graph.blocks[at]
        given: dict[int, dict[Placement, list[int]]] = defaultdict(lambda: defaultdict(list))
        for index in reversed(range(len(block.nodes))):
            node = block.nodes[index]
            if not node.gradients:
                continue
            self._output_gradient(at, index, node)
            for operand in node.inputs:
                if not self._has_gradient(at, node, operand.name, operand.tensor):
                    continue
                gives = self._gives(at, index, node, operand.name)
                home = owner(self.graph, at, operand.tensor)
                if home in self.constant:
                    self.summed[home] = _with(self.summed.get(home), gives)
                else:
                    given[operand.tensor][gives].append(index)
        for number, groups in given.items():
            self._input_gradient(at, block, number, groups)
        for number, tensor in enumerate(block.tensors):
            if tensor.role == "parameter" and tensor.trainable:
                self.gradients[at, number] = self.summed.get((at, number), REPLICATED)

    def _has_gradient(self, at: int, node: Node, name: str, number: int) -> bool:
        tensor = self.graph.tensor(self.graph.blocks[at], number)
        part = "weight_gradient" if name in node.operator.weight_operands else "input_gradient"
        if part not in node.gradients or tensor.dtype not in FLOATING:
            return False
        return tensor.trainable if tensor.role == "parameter" else owner(self.graph, at, number) in self.differentiable

    def _output_gradient(self, at: int, index: int, node: Node) -> None:
        """The gradient of an output comes from where it rests; the operator wants it where it was made."""
        number = node.outputs[0]
        made, rest = self.rested[at, number], self.placed[at, number]
        source, target = _mirror(rest), _mirror(made)
        if source != target and isinstance(source, Sharded):
            self.backward.append(Change(at, index, number, "backward", True, source, target, gradient=True))
        self._gradient_halo(at, index, node, number)
        for operand in node.inputs:
            need = self.needed[at, index][operand.name]
            if isinstance(need, Rotating):  # keys and values go round once more
                change = Change(at, index, operand.tensor, "backward", False, Sharded(need.dim), need)
                self.backward.append(change)
            elif self._gathers_again(at, index, node, operand.name, operand.tensor):
                source = self.placed[owner(self.graph, at, operand.tensor)]
                self.backward.append(Change(at, index, operand.tensor, "backward", False, source, need))

    def _gathers_again(self, at: int, index: int, node: Node, name: str, number: int) -> bool:
        """Whether this operator's input was gathered for it and is not kept so."""
        if not (self.conventions.gather_again and name == "x" and "weight_gradient" in node.gradients):
            return False
        first = next((c for c in self.changes[at] if c.tensor == number and not c.after), None)
        return first is not None and first.node == index and isinstance(first.target, Replicated)

    def _gradient_halo(self, at: int, index: int, node: Node, number: int) -> None:
        """The gradient of a window's output is needed with a border too."""
        if "input_gradient" not in node.gradients:
            return
        for place in self.places[at, index]:
            before, after = node.operator.halo(place.loop) if place.loop in SPACE else (0, 0)
            if before or after:
                stride = getattr(node.operator, "stride", (1,) * len(SPACE))[SPACE.index(place.loop) - len(SPACE)]
                where = self.rested[at, number]
                assert isinstance(where, Sharded)
                border = Sharded(where.dim, (ceil_div(after, stride), ceil_div(before, stride)))
                self.backward.append(Change(at, index, number, "backward", True, where, border, gradient=True))

    def _gives(self, at: int, index: int, node: Node, name: str) -> Placement:
        """Where an operator leaves the gradient of an operand."""
        places, need = self.places[at, index], self.needed[at, index][name]
        if not places:
            home = (at, node.outputs[0])
            return self.summed.get(home, REPLICATED) if home in self.constant else REPLICATED
        if isinstance(need, Sharded | Routed | Rotating):
            return Sharded(need.dim) if isinstance(need, Sharded) else need
        made, rest = self.rested[at, node.outputs[0]], self.placed[at, node.outputs[0]]
        if isinstance(made, Partial) and name == "b" and isinstance(rest, Replicated):
            return REPLICATED  # a bias is added once, to the sum
        if isinstance(node.operator, CrossEntropy) and name == "x":
            return REPLICATED
        return PARTIAL

    def _input_gradient(self, at: int, block: Block, number: int, groups: dict[Placement, list[int]]) -> None:
        """Bring the gradients that operators left to where the tensor itself is."""
        rest = self.placed[at, number] if number < len(block.tensors) else self.placed[owner(self.graph, at, number)]
        target = _mirror(rest)
        for gives, nodes in groups.items():
            if gives == target or (isinstance(gives, Replicated) and isinstance(target, Sharded)):
                continue  # a share of what every rank has is there already
            apart = self.conventions.each_consumer and isinstance(gives, Partial) and isinstance(target, Replicated)
            each = nodes if apart else [min(nodes)]
            self.backward += [
                Change(at, node, number, "backward", False, gives, target, gradient=True) for node in each
            ]

    def result(self) -> Spread:
        return Spread(
            self.axis,
            self.places,
            self.placed,
            tuple(change for found in self.changes.values() for change in found) + tuple(self.backward),
            tuple(statistic for found in self.statistics.values() for statistic in found),
            self.gradients,
            tuple(self.whole.items()),
        )

    def _tensor(self, at: int, node: Node, name: str) -> Tensor:
        return self.graph.tensor(self.graph.blocks[at], _operand(node, name))


@dataclass(frozen=True)
class _Ahead:
    """Looks where a share of an output would go: to a layer that takes its inputs in shares, or nowhere."""

    graph: Graph
    at: int
    ranks: int

    def good(self, number: int, dim: int, depth: int = 0) -> bool:
        """Whether everybody who reads the tensor can go on with a share of this dim, to a good end."""
        block = self.graph.blocks[self.at]
        readers = [(node, o) for node in block.nodes for o in node.inputs if o.tensor == number]
        if not readers or depth > 64 or self._leaves(number):
            return False
        return all(self._reads(block, node, o.name, dim, depth) for node, o in readers)

    def _leaves(self, number: int) -> bool:
        block = self.graph.blocks[self.at]
        return any(entry.carried == number for entry in block.imports) or any(
            entry.block == self.at and entry.tensor == number for later in self.graph.blocks for entry in later.imports
        )

    def _reads(self, block: Block, node: Node, name: str, dim: int, depth: int) -> bool:
        source = self.graph.tensor(block, _operand(node, name)).dims
        target = block.tensors[node.outputs[0]].dims
        if isinstance(node.operator, View):
            shown = seen_through(node, source, target, dim, self.ranks)
            return any(self.good(node.outputs[0], to, depth + 1) for to in shown)
        place = divisible(node, align(node, name, source)[dim], self.ranks)
        if place is None or isinstance(node.operator, Unknown):
            return False
        if isinstance(node.operator, CrossEntropy):
            return place.loop == "class"
        if isinstance(node.operator, WEIGHTED) and name == "x" and place.loop == "in":
            return True
        need = node.operator.need(place.loop)
        if need not in (Need.NOTHING, Need.STATISTICS) or (
            need is Need.STATISTICS and not node.operator.statistics(place.loop)
        ):
            return False
        to = next((d for d, walks in enumerate(align(node, "y", target)) if place in walks), None)
        return to is not None and self.good(node.outputs[0], to, depth + 1)


def _loop(node: Node, name: str) -> Dims:
    return next((loop.dims for loop in node.loops if loop.name == name), ())


def _operand(node: Node, name: str) -> int:
    return next(operand.tensor for operand in node.inputs if operand.name == name)


def _has_weight(graph: Graph, at: int, node: Node) -> bool:
    for operand in node.inputs:
        if operand.name == "w":
            home, number = storage_owner(graph, at, operand.tensor)
            return graph.blocks[home].tensors[number].role == "parameter"
    return False


def _together(node: Node, chosen: list[Place]) -> Iterator[Place]:
    """Places of other loops that walk over the same dim: rows gathered from rows of the same sample."""
    for one, other in node.operator.together:
        for place in chosen:
            for loop, twin in ((one, other), (other, one)):
                if place.loop == loop:
                    dim = size_at(node, place)
                    yield from (Place(twin, at) for at, d in enumerate(_loop(node, twin)) if d == dim)


def _mirror(where: Placement) -> Placement:
    """Where a gradient is for a tensor that is here: every summand needs the whole gradient of a sum."""
    return REPLICATED if isinstance(where, Partial) else where


def _with(one: Placement | None, other: Placement) -> Placement:
    """The placement of a sum of gradients: a summand makes it a summand."""
    return other if one is None or isinstance(other, Partial) else one
