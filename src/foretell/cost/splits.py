"""What layers whose images, filters or channels are split take beside their kernels and what links and network allow.

Two things, kept apart as the oracle paper's bars keep them (Kahira et al. 2021, Figure 3): messages, and what a rank
does around them. A gathered activation is joined from parts and its gradient cut into them, in copies that shrink with
no number of ranks (Figure 8: convolutions stop scaling where filters are split); a halo is cut out, padded and joined.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from foretell.plan.figures import look_up
from foretell.plan.trainer import Splits
from foretell.program.action import Communicate, TrafficKind
from foretell.units import Quantity, at_least

IMAGES: Final = "spatial"
WEIGHTS: Final = frozenset({"filter", "channel"})
AXES: Final = WEIGHTS | {IMAGES}

TERA: Final = 1e12


class MeshSplits(NamedTuple):
    """What the axes of a whole mesh say to each layer and message, whichever of the axes these are of: a price that is
    remembered has it in its key."""

    joins: float  # seconds a TB of an activation that is cut or joined
    weights: bool  # whether each rank of a group has its own part of every layer


def mesh_splits(splits: Splits, axes: Collection[str]) -> MeshSplits:
    """What a mesh with these axes says."""
    return MeshSplits(look_up(splits.joins, *axes), not WEIGHTS.isdisjoint(axes))


def splits_layers(message: Communicate) -> bool:
    """Whether it moves activations, or their gradients, of layers whose images, filters or channels are split."""
    return message.what in (TrafficKind.ACTIVATIONS, TrafficKind.GRADIENTS) and not AXES.isdisjoint(message.axes)


def split_seconds(message: Communicate, network: Quantity, splits: Splits, inside: bool) -> Quantity:
    """Seconds of a message that takes the links so long, `inside` a node or not: no faster than images are sent."""
    if splits.images and IMAGES in message.axes:
        return at_least(network, message.sent / splits.images)
    return network if inside else network / look_up(splits.reached, *message.axes)


def side_by_side(message: Communicate, splits: Splits, whole: MeshSplits) -> float:
    """Share of their rate that messages for weights reach where each rank of a group has its own part of every layer,
    so that the groups' sums share the ports of a node."""
    return look_up(splits.reached, *message.axes) if whole.weights else 1.0


def around_seconds(message: Communicate, splits: Splits, whole: MeshSplits) -> Quantity:
    """Seconds that a rank works around such a message."""
    if not splits_layers(message):
        return 0.0
    if message.kind == "exchange":
        return splits.halo * message.messages
    size = message.payload * (message.ranks if message.kind == "all-gather" else 1)
    return size / TERA * whole.joins
