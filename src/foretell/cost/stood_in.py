"""What the collectives of a rehearsal cost the rank that is there, where they take no time.

Its own share stands in all places of what is gathered (runtime/rehearsed_world.py): a kernel that computes an index for
each element writes them, on the stream that waits for them.
"""

from __future__ import annotations

from foretell.cost.collectives import library_of
from foretell.cost.kernels._reached import cycle_seconds
from foretell.cost.kernels.traffic import CYCLES
from foretell.hardware.cluster import Cluster
from foretell.program.action import Communicate, TrafficKind
from foretell.units import Quantity

OF_LAYERS = (TrafficKind.ACTIVATIONS, TrafficKind.GRADIENTS)


def stands_in(cluster: Cluster) -> bool:
    """Whether a GPU's rank writes what others would send. A processor's thread copies without indices."""
    return library_of(cluster).free and not cluster.device.is_processor


def gathered_seconds(size: Quantity, width: float, cluster: Cluster) -> Quantity:
    """Of so many bytes of a tensor whose elements are as wide as this."""
    if not stands_in(cluster) or not width:
        return 0.0
    return size / width * CYCLES["broadcast"] * cycle_seconds(cluster.device, int(width))


def message_seconds(message: Communicate, width: int, cluster: Cluster) -> Quantity:
    """Of a message between layers."""
    if message.kind != "all-gather" or message.what not in OF_LAYERS:
        return 0.0
    return gathered_seconds(message.payload * message.ranks * message.messages, width, cluster)
