"""What an operator does along one axis: which of its loops are divided, given what arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from foretell.model.adapters import BASIS, THIN
from foretell.model.graph import Block, Graph, Node, Tensor
from foretell.model.operator import Need
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import SPACE
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.layout import View
from foretell.model.operators.recurrent import Recurrent
from foretell.model.operators.unknown import Unknown
from foretell.plan.facts import facts
from foretell.plan.parts import members
from foretell.plan.placement import PARTIAL, REPLICATED, Placement, Rotating, Routed, Sharded
from foretell.plan.strategy import MeshAxis
from foretell.program.aliases import storage_owner
from foretell.program.sharding.ahead import WEIGHTED, Ahead, loop_dims, operand_tensor
from foretell.program.sharding.alignment import LoopDim, align, divisible, even, seen_through, size_at

HEAVY = (*WEIGHTED, Attention, Recurrent)
"""Operators with matrix work: one that every rank does all of deserves a note."""

WHOLE = ("head_dim", THIN)
"""Outputs that are never cut: the features of a head, and the few between the two matrices of an adapter."""

OTHERWISE = "another operator divides its weight otherwise"
GROUPED = "its weight has no dim that is divided with this loop alone"


@dataclass
class Decision:
    """What an operator does along the axis."""

    places: tuple[LoopDim, ...] = ()
    needs: dict[str, Placement] = field(default_factory=dict[str, Placement])  # operands with a need of their own
    gives: Placement | None = None  # the output's placement, where it does not follow from the places
    rest: Placement | None = None  # where the output goes at once, where the strategy does not say
    reason: str = ""  # why it is not divided


class ShardingRules:
    """Decides for one axis, operator by operator."""

    def __init__(self, graph: Graph, axis: MeshAxis, gathers_logits: bool) -> None:
        self.graph, self.axis, self.rule = graph, axis, axis.splitting
        self.gathers_logits = gathers_logits
        self.members = members(graph, axis.splitting.only)
        self.ahead = Ahead(graph, axis.ranks)
        self.vocabulary = facts(graph).vocabulary
        self.weights: dict[tuple[int, int], Placement] = {}  # where weights lie, once somebody divided them

    def decide(self, at: int, block: Block, index: int, node: Node, arriving: dict[str, Placement]) -> Decision:
        inside = self.members is None or (at, index) in self.members
        if not node.inputs and self.rule.shares_samples:
            return self._from_nothing(block, node)
        if self.members is not None and (self.rule.dim or self.rule.rest):
            way = self.rule.dim if inside else self.rule.rest
            arriving = {name: self._taken(at, node, name, where, way) for name, where in arriving.items()}
        if isinstance(node.operator, GroupedMatmul) and self.rule.experts == "divide":
            return self._experts(node, arriving["x"])
        if inside and self.rule.weighted and not (isinstance(node.operator, GroupedMatmul) and self.rule.experts):
            found = self._weighted(at, block, node, arriving)
            if found.places:
                return found
            follows = self._follow(at, block, node, arriving)
            small = any(dim.name == THIN for loop in node.loops for dim in loop.dims)
            return replace(follows, reason="" if follows.places or small else found.reason or follows.reason)
        if not inside and self.rule.dim and not self.rule.rest:
            return Decision()  # outside the part that is divided
        if isinstance(node.operator, Attention) and self.rule.attention:
            found = self._attention(at, node, arriving)
            if found.places:
                return found
        follows = self._follow(at, block, node, arriving)
        return follows if inside else replace(follows, reason="")

    def _from_nothing(self, block: Block, node: Node) -> Decision:
        """Zeros, or numbers that are drawn: each rank makes those of its own samples."""
        tensor = block.tensors[node.outputs[0]]
        dim = self.dim_of(tensor)
        if dim is None or tensor.dims[dim].size < self.axis.ranks:
            return Decision()
        return Decision(align(node, "y", tensor.dims)[dim])

    def _taken(self, at: int, node: Node, name: str, where: Placement, way: str) -> Placement:
        """What comes from the other side of a border between parts, in shares of the dim that this side divides.

        Of what is whole there each rank has its share already.
        """
        tensor = self._tensor(at, node, name)
        dim = _dim_of(tensor, way)
        moves = where == REPLICATED or (bool(self.rule.rest) and isinstance(where, Sharded))
        if not moves or tensor.role not in ("activation", "input") or dim is None:
            return where
        return Sharded(dim) if even(tensor.dims[dim], self.axis.ranks) else REPLICATED

    def dim_of(self, tensor: Tensor) -> int | None:
        """The dim that the axis takes shares of, by its place in this tensor."""
        return _dim_of(tensor, self.rule.dim)

    def dim_of_rest(self, tensor: Tensor) -> int | None:
        """The dim that it takes shares of where it leaves operators out."""
        return _dim_of(tensor, self.rule.rest)

    def _experts(self, node: Node, arriving: Placement) -> Decision:
        """Each rank has some experts, and the rows that belong to them; they come back to where they were."""
        even = (at for at, dim in enumerate(loop_dims(node, "row")) if dim.size % self.axis.ranks == 0)
        row = arriving.dim if isinstance(arriving, Sharded | Routed) else next(even, None)
        if row is None or row >= len(loop_dims(node, "row")) or loop_dims(node, "expert")[0].size % self.axis.ranks:
            return Decision(reason=f"{self.axis.ranks} ranks do not divide its experts and rows")
        places = (LoopDim("expert", 0), LoopDim("row", row))
        return Decision(places, {"x": Routed(row), "w": Sharded(0), "offsets": REPLICATED}, Routed(row))

    def _weighted(self, at: int, block: Block, node: Node, arriving: dict[str, Placement]) -> Decision:
        """Divide the inputs or the outputs of an operator that has weights."""
        if isinstance(node.operator, Embedding) and self.rule.flows and _has_weight(self.graph, at, node):
            if loop_dims(node, "vocab")[0].size < self.vocabulary:
                return Decision()  # trainers divide the vocabulary; small tables are everywhere
            place = divisible(node, (LoopDim("vocab", 0),), self.axis.ranks)
            if place is None:
                return Decision(reason="its table has fewer rows than ranks")
            reason = self._conflict(at, node, place)
            return Decision(reason=reason) if reason else Decision((place,))
        if not isinstance(node.operator, WEIGHTED) or not _has_weight(self.graph, at, node):
            return Decision()
        reason = ""
        for loop in self.rule.weighted:
            place = self._inputs(at, node, arriving) if loop == "in" else self._outputs_of(at, block, node)
            reason = place if isinstance(place, str) else self._conflict(at, node, place)
            if isinstance(place, LoopDim) and not reason:
                whole = self.gathers_logits and place.loop == "out" and self.ahead.ends_in_loss(at, node.outputs[0])
                return Decision((place,), rest=REPLICATED if whole else None)
        return Decision(reason=reason)

    def _conflict(self, at: int, node: Node, place: LoopDim) -> str:
        """Why the weight cannot lie so, if it cannot: all who share it divide it alike."""
        number = operand_tensor(node, "w")
        walks = align(node, "w", self.graph.tensor(self.graph.blocks[at], number).dims)
        where = next((Sharded(dim) for dim, places in enumerate(walks) if place in places), None)
        if where is None:  # the filters of groups: a dim of two loops
            return GROUPED
        return "" if self.weights.setdefault(storage_owner(self.graph, at, number), where) == where else OTHERWISE

    def _inputs(self, at: int, node: Node, arriving: dict[str, Placement]) -> LoopDim | str:
        inner = enumerate(loop_dims(node, "in"))
        places = tuple(LoopDim("in", position) for position, dim in inner if dim.name != THIN)
        if self.rule.flows:
            x = arriving["x"]
            if not isinstance(x, Sharded):
                return "its input arrives whole"
            walks = align(node, "x", self._tensor(at, node, "x").dims)[x.dim]
            return divisible(node, tuple(p for p in walks if p.loop == "in"), self.axis.ranks) or "not its input's dim"
        home = storage_owner(self.graph, at, operand_tensor(node, "x"))
        if self.graph.blocks[home[0]].tensors[home[1]].role == "input":
            return "it reads the data itself"
        fewest = min(dim.size for dim in loop_dims(node, "in"))
        return divisible(node, places, self.axis.ranks) or f"{self.axis.ranks} ranks do not divide {fewest} inputs"

    def _outputs_of(self, at: int, block: Block, node: Node) -> LoopDim | str:
        for position, dim in enumerate(loop_dims(node, "out")):
            place = divisible(node, (LoopDim("out", position),), self.axis.ranks)
            if place is None or dim.name in WHOLE:
                continue
            if not self.rule.flows:
                return place
            y = block.tensors[node.outputs[0]].dims
            dim = next((d for d, walks in enumerate(align(node, "y", y)) if place in walks), None)
            if dim is not None and self.ahead.good(at, node.outputs[0], dim):
                return place
            return "its output is needed whole"
        return f"{self.axis.ranks} ranks do not divide its outputs"

    def _attention(self, at: int, node: Node, arriving: dict[str, Placement]) -> Decision:
        """Attention whose positions are in shares: rotate keys and values, or divide heads instead."""
        query = arriving["q"]
        if not isinstance(query, Sharded):
            return Decision()
        walks = align(node, "q", self._tensor(at, node, "q").dims)[query.dim]
        if not any(place.loop == "query" for place in walks):
            return Decision()
        if self.rule.attention == "heads":
            place = divisible(node, (LoopDim("kv_head", 0), LoopDim("share", 0)), self.axis.ranks)
            return Decision((place,)) if place else Decision()
        if not (isinstance(node.operator, Attention) and node.operator.variant.rotates):
            return Decision()
        needs: dict[str, Placement] = {}
        for name in ("k", "v"):
            dims = self._tensor(at, node, name).dims
            walked = align(node, name, dims)
            needs[name] = Rotating(next(d for d, w in enumerate(walked) if any(p.loop == "key" for p in w)))
        return Decision((LoopDim("query", 0),), needs)

    def _follow(self, at: int, block: Block, node: Node, arriving: dict[str, Placement]) -> Decision:
        """Divide the loops over the shares that arrive."""
        if isinstance(node.operator, View):
            return self._view(at, block, node, arriving["x"])
        routed = [where for where in arriving.values() if isinstance(where, Routed)]
        if routed and all(isinstance(w, Routed) for w in arriving.values()):
            return self._routed(at, node, arriving)
        chosen: list[LoopDim] = []
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
        return Decision(tuple(chosen), reason="" if chosen else self._why_whole(node, arriving))

    def _why_whole(self, node: Node, arriving: dict[str, Placement]) -> str:
        if any(isinstance(where, Sharded | Routed) for where in arriving.values()):
            return "no rule says how its loops can be divided"
        of_weights = any(dim.name == BASIS for loop in node.loops for dim in loop.dims)  # nobody's samples: no loss
        return "what it reads is whole on every rank" if isinstance(node.operator, HEAVY) and not of_weights else ""

    def _routed(self, at: int, node: Node, arriving: dict[str, Placement]) -> Decision:
        places: dict[LoopDim, None] = {}
        for operand in node.inputs:
            where = arriving[operand.name]
            assert isinstance(where, Routed)
            walks = align(node, operand.name, self._tensor(at, node, operand.name).dims)[where.dim]
            places.update(dict.fromkeys(walks[:1]))
        first = next(iter(arriving.values()))
        return Decision(tuple(places), dict(arriving), first)

    def _view(self, at: int, block: Block, node: Node, where: Placement) -> Decision:
        if not isinstance(where, Sharded | Routed):
            return Decision()
        source, target = self._tensor(at, node, "x").dims, block.tensors[node.outputs[0]].dims
        dims = seen_through(node, source, target, where.dim, self.axis.ranks)
        if self.rule.flows and len(dims) > 1:
            dims = tuple(dim for dim in dims if self.ahead.good(at, node.outputs[0], dim)) or dims
        if dims:
            return Decision((LoopDim("item", dims[0]),), {"x": where}, type(where)(dims[0]))
        if isinstance(node.operator, View) and node.operator.function == "slice":
            return Decision((LoopDim("", 0),), {"x": where}, PARTIAL)  # the rank that has it, has it
        return Decision(reason="its dims do not show the share")

    def _splittable(self, node: Node, place: LoopDim) -> bool:
        need = node.operator.need(place.loop)
        if isinstance(node.operator, Unknown) or need in (Need.SEQUENTIAL, Need.WHOLE, Need.GATHER):
            return False
        weighted = isinstance(node.operator, WEIGHTED) and place.loop == "in" and not self.rule.flows
        return not (weighted and loop_dims(node, "out"))  # only strategies of layers divide their inputs

    def _fits(self, at: int, node: Node, places: tuple[LoopDim, ...]) -> bool:
        """No operand and no output may have two dims in shares along one axis."""
        operands = [(o.name, self._tensor(at, node, o.name).dims) for o in node.inputs]
        operands.append(("y", self.graph.blocks[at].tensors[node.outputs[0]].dims))
        return all(sum(any(p in places for p in walks) for walks in align(node, n, d)) <= 1 for n, d in operands)

    def _tensor(self, at: int, node: Node, name: str) -> Tensor:
        return self.graph.tensor(self.graph.blocks[at], operand_tensor(node, name))


def _dim_of(tensor: Tensor, way: str) -> int | None:
    names = [dim.name for dim in tensor.dims]
    if way.startswith("extent "):
        space = [at for at, name in enumerate(names) if name in SPACE]
        at = int(way.removeprefix("extent "))
        return space[at] if at < len(space) else None
    return names.index(way) if way in names else None


def _has_weight(graph: Graph, at: int, node: Node) -> bool:
    for operand in node.inputs:
        if operand.name == "w":
            home, number = storage_owner(graph, at, operand.tensor)
            return graph.blocks[home].tensors[number].role == "parameter"
    return False


def _together(node: Node, chosen: list[LoopDim]) -> Iterator[LoopDim]:
    """Places of other loops that walk over the same dim: rows gathered from rows of the same sample."""
    for one, other in node.operator.together:
        for place in chosen:
            for loop, twin in ((one, other), (other, one)):
                if place.loop == loop:
                    dim = size_at(node, place)
                    yield from (LoopDim(twin, at) for at, d in enumerate(loop_dims(node, twin)) if d == dim)
