"""All axes over a model at once: local sizes of operators and tensors, and what changes of placement move."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foretell.model.autocast import HeldBytes, held_under_autocast
from foretell.model.dims import Dim
from foretell.model.graph import Graph, Node, Tensor
from foretell.model.operators.matmul import Matmul, piece_rows
from foretell.model.resize import SAMPLE, skeleton
from foretell.plan.axis_names import AxisName
from foretell.plan.dispatch import USUAL, RoutedRows, dispatch
from foretell.plan.placement import Placement, Rotating, Routed, Sharded
from foretell.plan.reach import reach
from foretell.plan.rotation import USUAL as USUAL_ROTATION
from foretell.plan.rotation import Rotation
from foretell.plan.strategy import MeshAxis
from foretell.program.action import Communicate, TrafficKind
from foretell.program.aliases import alias_source
from foretell.program.kept import held_as_cast, multiplies_low
from foretell.program.sharding.alignment import LoopDim, align
from foretell.program.sharding.computations import Computations, Parts, computations, digits
from foretell.program.sharding.conventions import Conventions
from foretell.program.sharding.propagate import PlacementChange, Sharding, Statistic, propagate
from foretell.program.sharding.rotating import rotating
from foretell.program.sharding.transition import travel
from foretell.units import FLOATING, WIDTH, Quantity, at_least, at_most, ceil_div, product, rounded_up, share

JOINED = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
"""Collectives that several axes do as one, over all their ranks together."""

STATISTIC_WIDTH = WIDTH["fp32"]


class TrafficMoment(NamedTuple):
    """When in a block something travels: at a node, in a pass, with its output or an operand, value or gradient."""

    node: int
    phase: str
    after: bool
    gradient: bool

    @property
    def brings(self) -> bool:
        """Whether what an operator made comes from several ranks in the forward pass."""
        return self.phase == "forward" and self.after and not self.gradient


@dataclass(frozen=True)
class Layout:
    """The model propagate over every axis of the mesh but the pipeline's."""

    graph: Graph  # whose dims of samples are not read
    samples: Quantity
    axes: tuple[MeshAxis, ...]
    spreads: tuple[Sharding, ...]
    travels: Mapping[tuple[int, TrafficMoment], tuple[Communicate, ...]] = field(repr=False)
    padding: Mapping[str, int] = field(default_factory=dict[str, int])  # dims and what they are a multiple of
    imbalance: float = 1.0  # rows of the fullest rank of those that divide experts, over the mean
    loss_copies: int = 0  # tensors as large as the logits that the loss's backward pass makes beside their gradient
    autocast: bool = False  # whether products run in 16 bits, and the rest in fp32
    casts: bool = False  # whether each operator makes copies in its own type, one kernel each
    compiled: bool = False  # whether a compiler joins copies in 16 bits, and turns images
    in_place: bool = False  # whether the gradient of the logits takes the memory that the loss kept of them
    low: float = 0.0  # bytes of an input of layers' products as it is kept in few bits; 0: as it was read
    block: int = 0  # channels that a processor's library lays together for convolutions
    gates: bool = False  # whether inputs of f(gate) * up are kept so too
    attended: float = 0.0  # bytes of attention's output as it is kept then; 0: as it is
    sent: float = 0.0  # bytes of a number of a row that goes to experts in few bits; 0: as it was made
    gathered: float = 0.0  # bytes of a number of the sequence that tensor ranks gather; 0: as it was made
    dispatch: str = USUAL  # how rows reach experts, where the axis does not say
    rotation: Rotation = USUAL_ROTATION  # how keys and values in shares go round
    execution: str = "eager"  # how kernels run that work on them
    alike: Computations = field(default_factory=lambda: Computations({}, {}), repr=False, compare=False)
    known_sizes: dict[tuple[int, int], dict[str, Quantity]] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[int, int], dict[str, Quantity]]
    )
    known_bytes: dict[tuple[int, int], Quantity] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[int, int], Quantity]
    )
    computed: dict[tuple[int, int], Parts] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[int, int], Parts]
    )

    def _share(self, dim: Dim, ranks: int) -> Quantity:
        """A rank's share of a dim, padding included."""
        whole, multiple = self.whole(dim), self.padding.get(dim.name, 1)
        if multiple > 1:
            whole = ceil_div(whole, multiple) * multiple
        return share(whole, ranks) if ranks > 1 else whole

    def whole(self, dim: Dim) -> Quantity:
        """The size of a dim on all ranks together."""
        return self.samples if dim.name == SAMPLE else dim.size

    def elements(self, tensor: Tensor) -> Quantity:
        """Of a tensor on all ranks together."""
        return product(map(self.whole, tensor.dims))

    def sizes(self, at: int, index: int) -> dict[str, Quantity]:
        """Loop sizes of one operator on one rank."""
        if (at, index) not in self.known_sizes:
            self.known_sizes[at, index] = self._sizes(at, index)
        return self.known_sizes[at, index]

    def sizes_key(self, at: int, index: int) -> Hashable:
        """The same, the digits of arrays."""
        return at, index, *map(digits, self.sizes(at, index).values())

    def _sizes(self, at: int, index: int) -> dict[str, Quantity]:
        ways: dict[LoopDim, int] = defaultdict(lambda: 1)
        for axis, found in zip(self.axes, self.spreads, strict=True):
            for place in found.places[at, index]:
                ways[place] *= axis.ranks
        node = self.graph.blocks[at].nodes[index]
        sizes = {
            loop.name: product(self._share(dim, ways[LoopDim(loop.name, pos)]) for pos, dim in enumerate(loop.dims))
            for loop in node.loops
        }
        uneven = self._routed_loops(at, index) if self.imbalance > 1 else ()
        return {name: rounded_up(size * self.imbalance) if name in uneven else size for name, size in sizes.items()}

    def _routed_loops(self, at: int, index: int) -> set[str]:
        """Loops of an operator that walk over rows which went to experts."""
        block, found = self.graph.blocks[at], set[str]()
        node = block.nodes[index]
        for one in self.spreads:
            where = one.placed.get((at, node.outputs[0]))
            if isinstance(where, Routed):
                walks = align(node, "y", block.tensors[node.outputs[0]].dims)[where.dim]
                found.update(place.loop for place in walks)
        return found

    def shape(self, at: int, number: int, instead: Mapping[str, Placement] | None = None) -> tuple[Quantity, ...]:
        """Local sizes of a tensor's dims where it rests, or with other placements along some axes."""
        home = alias_source(self.graph, at, number)
        tensor = self.graph.blocks[home[0]].tensors[home[1]]
        ways = [1] * len(tensor.dims)
        for axis, found in zip(self.axes, self.spreads, strict=True):
            where = (instead or {}).get(axis.name, found.placed.get(home))
            if isinstance(where, Sharded | Routed | Rotating):
                ways[where.dim] *= axis.ranks
        return tuple(self._share(dim, way) for dim, way in zip(tensor.dims, ways, strict=True))

    def bytes(self, at: int, number: int, instead: Mapping[str, Placement] | None = None) -> Quantity:
        """Local bytes of a tensor."""
        if instead:
            return self._bytes(at, number, instead)
        if (at, number) not in self.known_bytes:
            self.known_bytes[at, number] = self._bytes(at, number, instead)
        return self.known_bytes[at, number]

    def _bytes(self, at: int, number: int, instead: Mapping[str, Placement] | None) -> Quantity:
        return self._elements(at, number, instead) * WIDTH[self.graph.tensor(self.graph.blocks[at], number).dtype]

    def _elements(self, at: int, number: int, instead: Mapping[str, Placement] | None) -> Quantity:
        elements = product(self.shape(at, number, instead))
        if self.imbalance > 1 and self._routed(at, number, instead or {}):
            return rounded_up(elements * self.imbalance)
        return elements

    def wire_bytes(self, at: int, number: int, instead: Mapping[str, Placement] | None = None) -> Quantity:
        """Local bytes of a tensor, or of its gradient, as it travels: in the type in which it was made."""
        held = self._held(at, number)
        return self.bytes(at, number, instead) if held is None else self._elements(at, number, instead) * held.gradient

    def sent_bytes(self, at: int, number: int, instead: Mapping[str, Placement] | None = None) -> Quantity:
        """The same of rows on their way to experts, which may be cast before they leave."""
        floats = self.graph.tensor(self.graph.blocks[at], number).dtype in FLOATING
        if not self.sent or not floats:
            return self.wire_bytes(at, number, instead)
        return self._elements(at, number, instead) * self.sent

    def gathered_bytes(self, at: int, number: int, instead: Mapping[str, Placement] | None = None) -> Quantity:
        """The same of what tensor ranks gather for products of layers, cast before it travels."""
        return self._elements(at, number, instead) * self.gathered

    def held_bytes(self, at: int, number: int) -> Quantity:
        """Local bytes of all that is held of a tensor, copies in another type included."""
        if self.pieces and (home := self.graph.home(at, number)[:2]) in self.pieces:
            n = self.sizes(home[0], self.pieces[home])
            return self.bytes(at, number) / n["row"] * piece_rows(n["row"], n["in"], n["out"])
        held = self._held(at, number)
        return self.bytes(at, number) if held is None else self.elements_of(at, number) * held.kept

    def gradient_bytes(self, at: int, number: int) -> Quantity:
        """Local bytes of its gradient."""
        held = self._held(at, number)
        return self.bytes(at, number) if held is None else self.elements_of(at, number) * held.gradient

    def elements_of(self, at: int, number: int) -> Quantity:
        """Local elements of a tensor."""
        return self.bytes(at, number) / WIDTH[self.graph.tensor(self.graph.blocks[at], number).dtype]

    def _held(self, at: int, number: int) -> HeldBytes | None:
        if not self.autocast and not self.low:
            return None
        held = (
            held_as_cast(self.graph, self.low, self.gates, self.attended)
            if self.low
            else held_under_autocast(self.graph, self.compiled)
        )
        return held.get(self.graph.home(at, number)[:2])

    @functools.cached_property
    def pieces(self) -> dict[tuple[int, int], int]:
        """Tensors of which there is a piece at a time, and the operator that makes them."""
        return {
            (at, node.outputs[0]): index
            for at, block in enumerate(self.graph.blocks)
            for index, node in enumerate(block.nodes)
            if isinstance(node.operator, Matmul) and node.operator.pieces
        }

    def _routed(self, at: int, number: int, instead: Mapping[str, Placement]) -> bool:
        """Whether a rank holds the rows of its experts: also of what was sent to them, which is kept as it came."""
        home = alias_source(self.graph, at, number)
        if not instead and home in self._sent:
            return True
        found = (instead.get(one.axis.name, one.placed.get(home)) for one in self.spreads)
        return any(isinstance(where, Routed) for where in found)

    @functools.cached_property
    def _sent(self) -> frozenset[tuple[int, int]]:
        """Tensors whose rows go to experts."""
        changes = (change for one in self.spreads for change in one.changes if isinstance(change.target, Routed))
        return frozenset(alias_source(self.graph, c.block, c.tensor) for c in changes if not c.gradient and not c.after)

    def kept_shape(self, at: int, index: int, loops: tuple[str, ...]) -> Quantity:
        """Elements of a tensor that spans some loops of an operator, on one rank."""
        sizes = self.sizes(at, index)
        return product(sizes.get(loop, 1) for loop in loops)

    def moving(self, at: int, moment: TrafficMoment) -> tuple[Communicate, ...]:
        """What travels at a moment."""
        return self.travels.get((at, moment), ())


def layout(
    graph: Graph,
    axes: tuple[MeshAxis, ...],
    conventions: Conventions,
    padding: Mapping[str, int] | None = None,
    imbalance: float = 1.0,
    samples: Quantity = 0,
) -> Layout:
    """Spread a model over all axes. Where none of them shares samples out, there may be an array of them."""
    plain = skeleton(graph)
    like = graph if any(axis.splitting.shares_samples for axis in axes) else plain
    spreads = tuple(propagate(like if axis.splitting.asks_samples else plain, axis, conventions) for axis in axes)
    count = graph.batch if isinstance(samples, int) and samples == 0 else samples
    alike = computations(plain, conventions)
    said = (padding or {}, imbalance, *conventions.of_bodies)
    bare = Layout(like, count, axes, spreads, {}, *said)
    travels: dict[tuple[int, TrafficMoment], list[Communicate]] = defaultdict(list)
    for (at, moment, number), found in _grouped(axes, spreads).items():
        for kind, members in _joined(found).items():
            (axis, _, messages), *_ = members
            turned = rotating(bare, at, moment, number, axis, messages) if kind[0] == "shift" else None
            if kind[0] != "shift":
                travels[at, moment].append(_message(bare, at, moment, number, kind, members))
            elif turned:
                travels[at, moment].append(turned)
    for (at, moment), messages in _statistics(bare).items():
        travels[at, moment] += messages
    found = {key: tuple(messages) for key, messages in travels.items()}
    return Layout(like, count, axes, spreads, found, *said, alike=alike)


_Members = list[tuple[MeshAxis, PlacementChange, int]]


def _grouped(
    axes: tuple[MeshAxis, ...], spreads: tuple[Sharding, ...]
) -> dict[tuple[int, TrafficMoment, int], list[tuple[MeshAxis, PlacementChange]]]:
    """The changes of each tensor at each moment along all axes, in the order they come in a step."""
    found: dict[tuple[int, TrafficMoment, int], list[tuple[MeshAxis, PlacementChange]]] = defaultdict(list)
    for axis, one in zip(axes, spreads, strict=True):
        for change in one.changes:
            moment = TrafficMoment(change.node, change.phase, change.after, change.gradient)
            found[change.block, moment, change.tensor].append((axis, change))
    return found


def _joined(found: list[tuple[MeshAxis, PlacementChange]]) -> dict[tuple[str, str], _Members]:
    """Axes along which the same kind of collective runs do it together; messages between neighbours do not."""
    kinds: dict[tuple[str, str], _Members] = defaultdict(list)
    for axis, change in found:
        travels = travel(change.source, change.target, axis.ranks)
        if travels is not None:
            key = (travels.kind, "" if travels.kind in JOINED else axis.name)
            kinds[key].append((axis, change, travels.messages))
    return kinds


def _message(
    bare: Layout, at: int, moment: TrafficMoment, number: int, kind: tuple[str, str], members: _Members
) -> Communicate:
    block = bare.graph.blocks[at]
    node = block.nodes[moment.node]
    instead = {axis.name: change.source for axis, change, _ in members}
    axis, change, messages = members[0]
    rows = _routed(bare, axis, change) if kind[0] == "all-to-all" else None
    sized = bare.sent_bytes if rows and not rows.home else bare.wire_bytes
    if bare.gathered and kind[0] == "all-gather" and axis.name == AxisName.TP and multiplies_low(bare.graph, at, node):
        sized = bare.gathered_bytes
    payload = sized(at, number, instead)
    if kind[0] == "all-to-all" and bare.imbalance > 1:  # the fullest rank receives more than it sends
        there = sized(at, number, {axis.name: change.target for axis, change, _ in members})
        gathered = rows is not None and not dispatch(rows.dispatch).routed
        payload = at_most(payload, there) if gathered else at_least(payload, there)
    if kind[0] == "exchange" and isinstance(change.target, Sharded):
        shape = bare.shape(at, number, instead)
        border = _border(node, change.target.halo, axis.ranks) if messages == 1 else sum(change.target.halo)
        payload = payload // at_least(shape[change.target.dim], 1) * border // messages
    return Communicate(
        kind=kind[0],
        axes=tuple(axis.name for axis, _, _ in members),
        ranks=product(axis.ranks for axis, _, _ in members),
        payload=payload,
        what=TrafficKind.GRADIENTS if moment.gradient else TrafficKind.ACTIVATIONS,
        path=node.path,
        messages=messages,
        rows=rows if rows and rows.dispatch != USUAL else None,
    )


def _routed(bare: Layout, axis: MeshAxis, change: PlacementChange) -> RoutedRows | None:
    """What is said of rows on their way to experts, or from them; None: it is something else that travels."""
    home = isinstance(change.source, Routed)
    found = reach(bare.graph) if home != isinstance(change.target, Routed) else None
    return RoutedRows(axis.splitting.dispatch or bare.dispatch, home, found) if found else None


def _border(node: Node, halo: tuple[int, int], ranks: int) -> int:
    """The most positions that a rank sees of one neighbour.

    Windows without padding make less than they read, so that shares of what is made begin ever earlier than those of
    what is read: what windows reach beyond lies behind the first rank and before the last one, and between in part.
    With strides it depends on how sizes divide, and the whole reach is taken.
    """
    before, after = halo
    drifts = all(step == 1 for step in getattr(node.operator, "stride", ()))
    return max(halo) - abs(after - before) // ranks if drifts else max(halo)


def _statistics(bare: Layout) -> dict[tuple[int, TrafficMoment], list[Communicate]]:
    """Small reductions inside operators; along several axes they run together."""
    found: dict[tuple[Statistic, int], list[MeshAxis]] = defaultdict(list)
    for axis, one in zip(bare.axes, bare.spreads, strict=True):
        seen: dict[Statistic, int] = defaultdict(int)
        for statistic in one.statistics:
            found[statistic, seen[statistic]].append(axis)
            seen[statistic] += 1
    result: dict[tuple[int, TrafficMoment], list[Communicate]] = defaultdict(list)
    for (statistic, _), members in found.items():
        elements = bare.kept_shape(statistic.block, statistic.node, statistic.loops)
        message = Communicate(
            kind="all-reduce",
            axes=tuple(axis.name for axis in members),
            ranks=product(axis.ranks for axis in members),
            payload=elements * statistic.values * STATISTIC_WIDTH,
            what=TrafficKind.STATISTICS,
            path=bare.graph.blocks[statistic.block].nodes[statistic.node].path,
        )
        moment = TrafficMoment(statistic.node, statistic.phase, after=True, gradient=statistic.phase == "backward")
        result[statistic.block, moment].append(message)
    return result


def has_weight_gradient(graph: Graph, at: int, node: Node) -> bool:
    """Whether its weight-gradient part is that of a parameter: nobody waits for it before the update."""
    for operand in node.inputs:
        if operand.name in node.operator.weight_operands:
            tensor = graph.tensor(graph.blocks[at], operand.tensor)
            if tensor.role == "parameter":
                return True
    return False
