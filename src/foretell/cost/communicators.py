"""What communicators hold of a device's memory, by their number and kind.

Each rank of a communicator has buffers for each channel and each rank that it is connected to. How many channels NCCL
makes, and what they hold, is in its source and in what it logs:

    in a node over NVLink    24 coll channels, 32 p2p channels, 32 p2p channels per peer     A100, H100
    over several nodes       16 coll channels, 16 p2p channels, 2 p2p channels per peer      8 ranks a node
    one rank of each node     2 coll channels, 2 p2p channels, 2 p2p channels per peer
    over PCIe                 2 coll channels, 2 p2p channels, 2 p2p channels per peer

A receiver's buffer for one channel and peer is 4 MiB for Simple, 4.69 for LL128 and 0.5 for LL, in pages of 2 MiB: 10
MiB, with 2 more on each side of both directions. So an all-to-all of 8 H100 takes 7 x 32 x 14 MiB = 3.29 GB; 3.28 were
measured (github.com/NVIDIA/nccl/issues/1685). Rings and trees have two neighbours at most, however many ranks there
are: 24 channels of 28 MiB make 672 MiB, of one neighbour 528; 688 and 544 were measured among four A100 and between two
(github.com/NVIDIA/nccl/issues/964). An NVLink switch that sums has 1 MiB each way for each of 16 channels and each rank
of a node beside (src/transport/nvls.cc: nvlsTotalSize; 4 MiB before NCCL 2.20).

Checked against eight H200 that train ResNet-152: 1.1 GiB more than one alone, 0.92 here. Of NCCL alone; RCCL is taken
to do the same. Groups that share a communicator's resources (`ncclCommSplit` with splitShare) hold less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from foretell.hardware.cluster import Cluster
from foretell.plan.axis_names import AxisName
from foretell.plan.strategy import MeshAxis
from foretell.program.mesh import stride

MIB: Final = 2**20

PEER: Final = 14 * MIB
"""Of one channel to one rank, both ways."""

ONE_NEIGHBOUR: Final = 22 * MIB
"""Of one channel of rings and trees between two ranks."""

BASE: Final = 12 * MIB
"""Of a communicator, whatever its channels: what 544 and 688 MiB have beside these and the message of 4 MiB."""

MOST_CHANNELS: Final = 24
PER_CHANNEL: Final = 12.5e9
"""B/s of NVLink that a channel is for: 12 of an A100's wires of 25 GB/s make 24 channels."""

NETWORK_CHANNELS: Final = 16
FEW_CHANNELS: Final = 2
"""Of one rank of a node, of PCIe, and for each rank that sends over a network."""

SWITCH: Final = 2 * 16 * MIB
"""In a switch that sums, for each rank of a node: 16 channels, both ways."""

SUMMED_BY_SWITCH: Final = 3
"""Ranks of a node from which on the switch sums (src/transport/nvls.cc: more than two)."""


HEADS: Final = 32
"""Ranks that share a switch's sums at most (src/include/device.h: NCCL_MAX_NVLS_ARITY)."""


class Communicator(NamedTuple):
    """A group of ranks, as one of them sees it."""

    axis: str
    kind: str  # collective; point: with neighbours; exchange: with every rank
    ranks: int
    near: int  # of these, reached without a network, itself included


def communicators(axes: tuple[MeshAxis, ...], cluster: Cluster) -> Iterator[Communicator]:
    """One for each axis of the mesh; ranks that divide experts sum the gradients of what they all have too.

    Beside several axes one of all ranks, for the norm of all gradients (Megatron-Core 0.15,
    megatron/core/optimizer/clip_grads.py: over the ranks of a model; torch.nn.utils.clip_grad_norm_ of DTensors).
    """
    for axis in axes:
        near = min(axis.ranks, max(1, cluster.domain // stride(axes, (axis.name,))))
        own = Communicator(axis.name, _kind(axis), axis.ranks, near)
        yield own
        if own.kind == "exchange" and axis.name == "ep":
            yield own._replace(kind="collective")
    if len(axes) > 1:
        ranks = math.prod(axis.ranks for axis in axes)
        yield Communicator("all", "collective", ranks, min(ranks, cluster.domain))


def _kind(axis: MeshAxis) -> str:
    if axis.name == AxisName.PP or axis.splitting.attention == "rotate":
        return "point"
    if axis.splitting.attention == "heads" or (axis.name == "ep" and axis.splitting.experts == "divide"):
        return "exchange"
    return "collective"


def communicator_bytes(own: Communicator, cluster: Cluster) -> float:
    """What a communicator holds on one rank."""
    link = cluster.levels[0].link
    wires = max(1, min(MOST_CHANNELS, int(link.bandwidth / PER_CHANNEL))) if link.kind in FAST else FEW_CHANNELS
    if own.kind == "collective":
        return BASE + _collective(own, wires) + _switch(own, link.multicast)
    fast = 2 ** (wires - 1).bit_length()  # channels for each rank that sends: the next power of two
    if own.kind == "point":
        peers = min(2, own.ranks - 1)
        near = min(peers, own.near - 1)
    else:
        peers, near = own.ranks - 1, own.near - 1
    near = min(near, MOST_FAST)
    return BASE + PEER * (near * fast + min(peers - near, MOST_FAR) * FEW_CHANNELS)


FORWARDED: Final = {8: 256, 64: 288, 160: 720}
"""Rows that DeepEP has room for from each rank of a node and channel, by the most ranks (deep_ep/buffer.py of its first
version: get_dispatch_config; of several numbers the largest)."""

CROSSING: Final = 140
"""Rows from each node and channel: 128 in whole messages of 28."""

FORWARDING_CHANNELS: Final = 10
"""Two multiprocessors each, of the 20 that it takes unasked."""

ABOUT_ROW: Final = 128 * (8 + 4 + 4) + 8
"""Bytes beside a row: room for 128 experts with weights, for 128 scales, and for where it came from."""


def forwarding_bytes(own: Communicator, elements: int) -> float:
    """What DeepEP holds on a rank for rows of so many 16-bit numbers: over NVLink, and over the network both ways.

    As its csrc/config.hpp counts (get_nvl_buffer_size_hint, get_rdma_buffer_size_hint).
    """
    row, nodes = 2 * elements + ABOUT_ROW, -(-own.ranks // own.near)
    rows = next((count for most, count in FORWARDED.items() if own.ranks <= most), max(FORWARDED.values()))
    inside = own.near * rows
    between = 2 * nodes * CROSSING if nodes > 1 else 0
    return float(FORWARDING_CHANNELS * (inside + between) * row)


def registered_bytes(own: Communicator, tokens: float, elements: int, experts: int) -> float:
    """What HybridEP holds on a rank that has so many tokens of so many 16-bit numbers, of a model's `experts`.

    Room for all tokens of the group, should all go to one rank, with a weight in 32 bits for each expert of a node; the
    same memory takes them on their way back. Over a network besides what comes from each other node, on both ways and
    summed, and what is sent (DeepEP, branch hybrid-ep, csrc/hybrid_ep/hybrid_ep.cu: allocate_buffer_for_dispatch,
    allocate_buffer_for_combine; max_num_of_tokens_for_experts).
    """
    nodes = -(-own.ranks // own.near)
    row = 2 * elements + 4 * experts / nodes
    between = tokens * (2 * elements + 3 * (nodes - 1) * row) if nodes > 1 else 0.0
    return tokens * own.ranks * row + between


FAST: Final = ("nvlink", "xgmi")

MOST_FAST: Final = 7
"""Ranks with all channels to each: as many as were measured. Beyond, in a rack of NVLink, few channels are assumed."""

MOST_FAR: Final = 16
"""Ranks over a network whose channels have buffers of their own: sends over a network share one for each channel
(github.com/NVIDIA/nccl/issues/1450), of 512 MiB on B300 (github.com/NVIDIA/nccl/issues/2363)."""


def _collective(own: Communicator, wires: int) -> float:
    channels = wires if own.near == own.ranks else min(NETWORK_CHANNELS, max(FEW_CHANNELS, 2 * own.near))
    return channels * (2 * PEER if own.ranks > 2 else ONE_NEIGHBOUR)


def _switch(own: Communicator, sums: bool) -> float:
    return SWITCH * min(own.near, HEADS) if sums and own.near >= SUMMED_BY_SWITCH else 0.0
