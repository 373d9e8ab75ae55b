"""What messages of split images and filters cost in a trainer beside what links and network take."""

from __future__ import annotations

from typing import Final

from foretell.plan.trainer import Splits
from foretell.program.action import Communicate, TrafficKind
from foretell.units import Quantity, at_least

IMAGES: Final = "spatial"
AXES: Final = frozenset({IMAGES, "filter", "channel"})


def splits_layers(message: Communicate) -> bool:
    """Whether it moves activations, or their gradients, of layers whose images, filters or channels are split."""
    return message.what in (TrafficKind.ACTIVATIONS, TrafficKind.GRADIENTS) and not AXES.isdisjoint(message.axes)


def split_seconds(message: Communicate, network: Quantity, splits: Splits) -> Quantity:
    """Seconds of a message that takes the network so long: no faster than the trainer sends images, and the host's
    part in it."""
    if splits.images and IMAGES in message.axes:
        network = at_least(network, message.sent / splits.images)
    return network + splits.wait * message.messages
