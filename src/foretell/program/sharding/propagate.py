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
from dataclasses import dataclass

from foretell.caches import forgettable
from foretell.model.graph import Block, Graph, Node, Tensor
from foretell.model.operator import Need
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import SPACE
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.normalization import Normalize
from foretell.plan.placement import PARTIAL, REPLICATED, Partial, Placement, Replicated, Rotating, Routed, Sharded
from foretell.plan.strategy import MeshAxis
from foretell.program.aliases import alias_source
from foretell.program.sharding.ahead import WEIGHTED
from foretell.program.sharding.alignment import LoopDim, align
from foretell.program.sharding.conventions import USUAL, Conventions
from foretell.program.sharding.rules import Decision, ShardingRules
from foretell.units import FLOATING, ceil_div


@dataclass(frozen=True, slots=True)
class PlacementChange:
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
class Sharding:
    """One axis over the whole model."""

    axis: MeshAxis
    places: dict[tuple[int, int], tuple[LoopDim, ...]]  # (block, node) to the places that are divided
    placed: dict[tuple[int, int], Placement]  # (block, tensor) to where it rests
    changes: tuple[PlacementChange, ...]
    statistics: tuple[Statistic, ...]
    gradients: dict[tuple[int, int], Placement]  # of weights, at the end of the backward pass
    whole: tuple[tuple[str, str], ...]  # operators that every rank does all of, and why


@forgettable
@functools.lru_cache(maxsize=512)
def propagate(graph: Graph, axis: MeshAxis, conventions: Conventions = USUAL) -> Sharding:
    """Follow one axis through the model."""
    walk = _Walk(graph, axis, conventions)
    for at in range(len(graph.blocks)):
        walk.enter(at)
    for at in reversed(range(len(graph.blocks))):
        walk.leave(at)
    return walk.result()


class _Walk:
    """The state while one axis is followed through the blocks, forward and then back."""

    def __init__(self, graph: Graph, axis: MeshAxis, conventions: Conventions) -> None:
        self.graph, self.axis, self.rule, self.conventions = graph, axis, axis.splitting, conventions
        self.late_sums = conventions.late_sums and self.rule.weighted == ("out",)
        self.chooser = ShardingRules(graph, axis, conventions.gathers_logits)
        self.places: dict[tuple[int, int], tuple[LoopDim, ...]] = {}
        self.placed: dict[tuple[int, int], Placement] = {}
        self.rested: dict[tuple[int, int], Placement] = {}  # outputs before they were settled
        self.needed: dict[tuple[int, int], dict[str, Placement]] = {}  # (block, node) to operands
        self.changes: dict[int, list[PlacementChange]] = {}
        self.statistics: dict[int, list[Statistic]] = {}
        self.backward: list[PlacementChange] = []
        self.gradients: dict[tuple[int, int], Placement] = {}
        self.constant: set[tuple[int, int]] = set()
        self.summed: dict[tuple[int, int], Placement] = {}  # gradients of constants while walking back
        self.whole: dict[str, str] = {}
        # what somebody reads outside the part that is divided, and inside: where both do it is whole
        self.outside, self.inside = self._read(inside=False), self._read(inside=True)
        self.differentiable = {
            (at, number)
            for at, block in enumerate(graph.blocks)
            for node in block.nodes
            if node.gradients
            for number in node.outputs
        }

    def _read(self, inside: bool) -> frozenset[tuple[int, int]]:
        """Tensors that operators read inside the part that is divided, or outside of it; inside is all if it is all."""
        members = self.chooser.members
        return frozenset(
            alias_source(self.graph, at, operand.tensor)
            for at, block in enumerate(self.graph.blocks)
            for index, node in enumerate(block.nodes)
            if (members is None or (at, index) in members) is inside
            for operand in node.inputs
        )

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
        return entering[number] if number in entering else self.placed[alias_source(self.graph, at, number)]

    def _block(self, at: int, block: Block, entering: dict[int, Placement]) -> None:
        self.changes[at], self.statistics[at] = [], []
        made = {number for node in block.nodes for number in node.outputs}
        arrives = bool(self.rule.dim) and not self.rule.only
        for number, tensor in enumerate(block.tensors):
            if number not in made and tensor.role != "kept":
                self.placed[at, number] = self._given((at, number), tensor)
                same = tensor.role == "input" and arrives and self.placed[at, number] == REPLICATED
                if same or tensor.role in ("parameter", "buffer"):  # the same on every rank, whoever reads it
                    self.constant.add((at, number))
        here = {n: self._arriving(at, n, entering) for n in range(len(block.tensors), self._known(block))}
        ready: set[tuple[int, Placement]] = set()  # tensors that are already also elsewhere
        for index, node in enumerate(block.nodes):
            arriving = {o.name: here.get(o.tensor) or self.placed[at, o.tensor] for o in node.inputs}
            decision = self.chooser.decide(at, block, index, node, arriving)
            self.places[at, index] = decision.places
            needs = {o.name: self._need(at, node, o.name, o.tensor, decision) for o in node.inputs}
            self.needed[at, index] = needs
            for operand in node.inputs:
                self._want(at, index, operand.tensor, arriving[operand.name], needs[operand.name], ready)
            self._outputs(at, block, index, node, decision)
            if not decision.places and all(
                alias_source(self.graph, at, o.tensor) in self.constant for o in node.inputs
            ):
                self.constant.update((at, number) for number in node.outputs)
            self._small_sums(at, index, node, decision)
            if not decision.places and decision.reason:
                self.whole[node.path] = f"{node.kind}: {decision.reason}"

    @staticmethod
    def _known(block: Block) -> int:
        return len(block.tensors) + len(block.imports)

    def _given(self, home: tuple[int, int], tensor: Tensor) -> Placement:
        """Where a tensor is that no operator made. Weights are stored as they are used: see `_need`."""
        dim = None
        if tensor.role == "input" and home not in self.outside:
            dim = self.chooser.dim_of(tensor)
        elif tensor.role == "input" and home not in self.inside:  # a rank takes its own samples, or all of them
            dim = self.chooser.dim_of_rest(tensor)
        return REPLICATED if dim is None or tensor.dims[dim].size < self.axis.ranks else Sharded(dim)

    def _want(
        self, at: int, node: int, number: int, source: Placement, target: Placement, ready: set[tuple[int, Placement]]
    ) -> None:
        """Note the change that brings an operand where it is needed, once for each place."""
        home = alias_source(self.graph, at, number)
        tensor = self.graph.blocks[home[0]].tensors[home[1]]
        if tensor.role in ("parameter", "buffer") and home in self.constant:
            self.placed[home] = target  # weights lie where they are used
            return
        if source != target and (number, target) not in ready:
            ready.add((number, target))
            self.changes[at].append(PlacementChange(at, node, number, "forward", False, source, target))

    # where operands are needed and outputs are

    def _need(self, at: int, node: Node, name: str, number: int, decision: Decision) -> Placement:
        if name in decision.needs:
            return decision.needs[name]
        tensor = self.graph.tensor(self.graph.blocks[at], number)
        for dim, walks in enumerate(align(node, name, tensor.dims)):
            for place in walks:
                if place in decision.places:
                    return Sharded(dim, self._halo(node, name, place))
        return REPLICATED

    def _halo(self, node: Node, name: str, place: LoopDim) -> tuple[int, int]:
        return node.operator.halo(place.loop) if name == "x" and place.loop in SPACE else (0, 0)

    def _outputs(self, at: int, block: Block, index: int, node: Node, decision: Decision) -> None:
        for number in node.outputs:
            made = self._made(block.tensors[number], node, decision)
            rest = self._settled(block.tensors[number], node, decision, made)
            self.placed[at, number], self.rested[at, number] = rest, made
            if made != rest and block.tensors[number].dims:  # of a loss nobody asks for the sum within a step
                self.changes[at].append(PlacementChange(at, index, number, "forward", True, made, rest))

    def _made(self, tensor: Tensor, node: Node, decision: Decision) -> Placement:
        if decision.gives is not None and not isinstance(decision.gives, Partial):
            return decision.gives
        if isinstance(decision.gives, Partial):
            return PARTIAL
        for dim, walks in enumerate(align(node, "y", tensor.dims)):
            if any(place in decision.places for place in walks):
                return Sharded(dim)
        needs = {node.operator.need(place.loop) for place in decision.places}
        return PARTIAL if Need.SUM in needs else REPLICATED

    def _settled(self, tensor: Tensor, node: Node, decision: Decision, made: Placement) -> Placement:
        """Where an output goes at once: summands are added up, shares that may not go on are joined."""
        if decision.rest is not None:
            return decision.rest
        between = next((at for at, dim in enumerate(tensor.dims) if dim.name == self.rule.between), None)
        home = self.chooser.dim_of(tensor)
        if isinstance(made, Partial):
            return REPLICATED if between is None else Sharded(between)
        weighted = self.rule.weighted and isinstance(node.operator, WEIGHTED)
        if isinstance(made, Sharded) and weighted and not self.rule.flows and decision.places[0].loop in ("in", "out"):
            return REPLICATED
        if isinstance(made, Sharded) and isinstance(node.operator, Attention) and self.rule.attention == "heads":
            return made if home is None else Sharded(home)
        return made

    def _small_sums(self, at: int, index: int, node: Node, decision: Decision) -> None:
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
            self._frozen(at, index, node)
            if not node.gradients:
                continue
            self._output_gradient(at, index, node)
            for operand in node.inputs:
                if not self._has_gradient(at, node, operand.name, operand.tensor):
                    continue
                gives = self._gives(at, index, node, operand.name)
                home = alias_source(self.graph, at, operand.tensor)
                if home in self.constant:
                    self.summed[home] = _with(self.summed.get(home), gives)
                else:
                    given[operand.tensor][gives].append(index)
        for number, groups in given.items():
            self._input_gradient(at, block, number, groups)
        for number, tensor in enumerate(block.tensors):
            if tensor.role == "parameter":
                self.gradients[at, number] = self.summed.get((at, number), REPLICATED)

    def _frozen(self, at: int, index: int, node: Node) -> None:
        """A frozen weight has no gradient, but lies in shares wherever a trained one in its place would."""
        for operand in node.inputs:
            home = alias_source(self.graph, at, operand.tensor)
            tensor = self.graph.blocks[home[0]].tensors[home[1]]
            if tensor.role == "parameter" and not tensor.trainable and home in self.constant:
                self.summed[home] = _with(self.summed.get(home), self._gives(at, index, node, operand.name))

    def _has_gradient(self, at: int, node: Node, name: str, number: int) -> bool:
        tensor = self.graph.tensor(self.graph.blocks[at], number)
        part = "weight_gradient" if name in node.operator.weight_operands else "input_gradient"
        if part not in node.gradients or tensor.dtype not in FLOATING:
            return False
        return (
            tensor.trainable
            if tensor.role == "parameter"
            else alias_source(self.graph, at, number) in self.differentiable
        )

    def _output_gradient(self, at: int, index: int, node: Node) -> None:
        """The gradient of an output comes from where it rests; the operator wants it where it was made."""
        number = node.outputs[0]
        made, rest = self.rested[at, number], self.placed[at, number]
        source, target = _mirror(rest), _mirror(made)
        if self.late_sums and isinstance(rest, Replicated) and isinstance(made, Sharded):
            source = PARTIAL
        if source != target and isinstance(source, Sharded | Partial):
            self.backward.append(PlacementChange(at, index, number, "backward", True, source, target, gradient=True))
        self._gradient_halo(at, index, node, number)
        for operand in node.inputs:
            need = self.needed[at, index][operand.name]
            if isinstance(need, Rotating):  # keys and values go round once more
                change = PlacementChange(at, index, operand.tensor, "backward", False, Sharded(need.dim), need)
                self.backward.append(change)
            elif self._gathers_again(at, index, node, operand.name, operand.tensor):
                source = self.placed[alias_source(self.graph, at, operand.tensor)]
                self.backward.append(PlacementChange(at, index, operand.tensor, "backward", False, source, need))

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
                self.backward.append(PlacementChange(at, index, number, "backward", True, where, border, gradient=True))

    def _gives(self, at: int, index: int, node: Node, name: str) -> Placement:
        """Where an operator leaves the gradient of an operand."""
        places, need = self.places[at, index], self.needed[at, index][name]
        if not places:
            home = (at, node.outputs[0])
            found = self.summed.get(home, REPLICATED) if home in self.constant else REPLICATED
            return PARTIAL if isinstance(found, Sharded) else found  # a share of a sum is a summand
        if isinstance(need, Sharded | Routed | Rotating):
            return Sharded(need.dim) if isinstance(need, Sharded) else need
        made, rest = self.rested[at, node.outputs[0]], self.placed[at, node.outputs[0]]
        if isinstance(made, Partial) and name == "b" and (self.conventions.whole_bias or isinstance(rest, Replicated)):
            return REPLICATED  # a bias is added once, to the sum
        if isinstance(node.operator, CrossEntropy) and name == "x":
            return REPLICATED
        return PARTIAL

    def _input_gradient(self, at: int, block: Block, number: int, groups: dict[Placement, list[int]]) -> None:
        """Bring the gradients that operators left to where the tensor itself is."""
        rest = (
            self.placed[at, number]
            if number < len(block.tensors)
            else self.placed[alias_source(self.graph, at, number)]
        )
        target = _mirror(rest)
        for gives, nodes in groups.items():
            if gives == target or (isinstance(gives, Replicated) and isinstance(target, Sharded)):
                continue  # a share of what every rank has is there already
            if self.late_sums and isinstance(gives, Partial) and isinstance(target, Replicated):
                continue  # passes are linear: summands go on
            apart = self.conventions.each_consumer and isinstance(gives, Partial) and isinstance(target, Replicated)
            each = nodes if apart else [min(nodes)]
            self.backward += [
                PlacementChange(at, node, number, "backward", False, gives, target, gradient=True) for node in each
            ]

    def result(self) -> Sharding:
        return Sharding(
            self.axis,
            self.places,
            self.placed,
            tuple(change for found in self.changes.values() for change in found) + tuple(self.backward),
            tuple(statistic for found in self.statistics.values() for statistic in found),
            self.gradients,
            tuple(self.whole.items()),
        )


def _mirror(where: Placement) -> Placement:
    """Where a gradient is for a tensor that is here: every summand needs the whole gradient of a sum."""
    return REPLICATED if isinstance(where, Partial) else where


def _with(one: Placement | None, other: Placement) -> Placement:
    """The placement of a sum of gradients: a summand makes it a summand."""
    return other if one is None or isinstance(other, Partial) else one
