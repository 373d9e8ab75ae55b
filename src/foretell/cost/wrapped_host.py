"""The host's work around modules and weights that PyTorch wraps, counted in operators that it could start meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from foretell.plan.axis_names import AxisName
from foretell.plan.placement import Sharded
from foretell.plan.wrapped import Wrapped
from foretell.program.action import Actions, Communicate, Compute, TrafficKind
from foretell.program.aliases import storage_owner
from foretell.program.rank_program import BlockKind
from foretell.program.sharding.layout import Layout
from foretell.program.sharding.propagate import Sharding
from foretell.program.weights import Weight
from foretell.units import Quantity

PRODUCT, NORM = "matmul", "normalize"
"""Operators that tensor parallelism wraps, as prices know them."""


class Wraps(NamedTuple):
    """What PyTorch has wrapped of a kind of layer."""

    split: frozenset[str]  # paths of products whose weights are split among tensor ranks
    norms: frozenset[str]  # and of norms whose tokens are
    again: bool  # whether any of it runs a second time
    watched: bool  # whether each of its operators is asked whether it is saved


BARE = Wraps(frozenset(), frozenset(), False, False)
"""Nothing."""


def wraps_of(layout: Layout, kind: BlockKind, backward: Actions, watched: bool) -> Wraps:
    """What is wrapped of a kind of layer with this backward pass."""
    again = any(isinstance(one, Compute) and one.again for one in backward)
    spreads = [one for axis, one in zip(layout.axes, layout.spreads, strict=True) if axis.name == AxisName.TP]
    if not spreads:
        return Wraps(frozenset(), frozenset(), again, again and watched)
    products, norms = _split_products(layout, kind, spreads), _split_norms(layout, kind, spreads)
    return Wraps(frozenset(products), frozenset(norms), again, again and watched)


def _split_norms(layout: Layout, kind: BlockKind, spreads: Sequence[Sharding]) -> Iterator[str]:
    for index, node in enumerate(layout.graph.blocks[kind.block].nodes[kind.start : kind.stop], kind.start):
        if node.operator.priced_as == NORM and any(spread.places[kind.block, index] for spread in spreads):
            yield node.path


def _split_products(layout: Layout, kind: BlockKind, spreads: Sequence[Sharding]) -> Iterator[str]:
    block = layout.graph.blocks[kind.block]
    for node in block.nodes[kind.start : kind.stop]:
        homes = [storage_owner(layout.graph, kind.block, one.tensor) for one in node.inputs]
        weights = [home for home in homes if layout.graph.blocks[home[0]].tensors[home[1]].role == "parameter"]
        placed = (spread.placed.get(home) for spread in spreads for home in weights)
        if node.operator.priced_as == PRODUCT and any(isinstance(place, Sharded) for place in placed):
            yield node.path


def around_operator(action: Compute, launches: Quantity, wraps: Wraps, wrapped: Wrapped) -> Quantity:
    """Of a part of an operator with so many launches."""
    asked = wraps.watched and action.part == "forward"
    return around_module(action, wraps, wrapped) + (wrapped.watched * launches if asked else 0.0)


def around_module(action: Compute, wraps: Wraps, wrapped: Wrapped) -> float:
    """Of its module. Either half of a backward pass has as much, whichever of them there are."""
    if action.operator == PRODUCT and action.path in wraps.split:
        return wrapped.product_forward if action.part == "forward" else wrapped.product_backward / 2
    if action.operator == NORM and action.path in wraps.norms:
        return wrapped.norm_forward if action.part == "forward" else wrapped.norm_backward / 2
    return 0.0


def around_message(message: Communicate, wrapped: Wrapped) -> float:
    """Of a message between operators."""
    if message.what not in (TrafficKind.ACTIVATIONS, TrafficKind.GRADIENTS):
        return 0.0
    if message.axes == (AxisName.CP,) and message.kind == "shift":
        return wrapped.turn * message.messages
    return wrapped.message if message.axes == (AxisName.TP,) else 0.0


def around_region(wraps: Wraps, wrapped: Wrapped) -> float:
    """Of either pass of a layer that runs again: hooks on all that it keeps, and on what it makes anew."""
    return wrapped.region if wraps.again else 0.0


def around_units(units: Mapping[str, Sequence[Weight]], layers: Iterable[str], wrapped: Wrapped) -> Iterator[float]:
    """Of either pass of a layer whose weights lie in shares, for each run of layers; the first has them gathered."""
    seen = set[str]()
    for layer in layers:
        unit = units.get(layer, ()) if layer not in seen else ()
        seen.add(layer)
        yield wrapped.unit + wrapped.unit_tensor * len(unit) if unit else 0.0
