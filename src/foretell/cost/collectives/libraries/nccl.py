"""NCCL, and what speaks as it does on other makers' devices (RCCL).

Protocols were read from 908 timed rows of published sweeps, V100 to B200 (`studies/collectives`). Times of hops are in
units of the link's own `latency_seconds`, which is that of LL: 0.7 us on NVLink, 1.7 times that on PCIe, 4 us over a
network. NCCL's own table (src/graph/tuning.cc of NCCL 2.30: base 6.6 / 14 / 8.4 us; NVLink ring 0.6 / 1.9 / 3.4 us;
network ring 2.7 / 4 / 14 us) decides which protocol to take; it is far too low for cloud fabrics and for
Simple over a network.
"""

from __future__ import annotations

from foretell.cost.collectives import MESSAGES, Library, Protocol
from foretell.cost.collectives._traffic import REDUCING

NVLINK_HOP = 0.7e-6
NETWORK_HOP = 4e-6
"""Hops of LL that the ratios below are taken of (hardware/links)."""

PROTOCOLS = (
    Protocol(
        name="LL", families=("ring",), base=6.6e-6, hop=1.0, network_hop=1.0, fabric_hop=1.0,
        inside_rate=0.5, network_rate=0.14,
    ),
    Protocol(
        name="LL", families=("tree",), base=6.6e-6, hop=1.0, network_hop=1.0, fabric_hop=1.0,
        inside_rate=0.26, network_rate=0.14,
    ),
    Protocol(
        name="LL128", families=("ring", "tree"), base=12e-6, hop=1.5e-6 / NVLINK_HOP,
        network_hop=7e-6 / NETWORK_HOP, fabric_hop=1.0, inside_rate=0.92, network_rate=0.92, picky=True,
    ),
    # Simple pays the network once for each passage and not at each hop: 96 H100 lose about 230 us in all at
    # 512 MiB, where a charge at each hop gives more than 1,000.
    Protocol(
        name="Simple", families=("ring",), base=8.4e-6, hop=2.3e-6 / NVLINK_HOP, network_hop=2.3e-6 / NETWORK_HOP,
        fabric_hop=0.0, passage=40e-6 / NETWORK_HOP, fabric_passage=3.5,
    ),
    Protocol(
        name="Simple", families=("tree",), base=8.4e-6, hop=2.3e-6 / NVLINK_HOP, network_hop=2.3e-6 / NETWORK_HOP,
        fabric_hop=0.0, passage=40e-6 / NETWORK_HOP, fabric_passage=3.5, inside_rate=0.85,
    ),
    Protocol(
        name="Simple", families=("nvls",), base=18e-6, hop=0.0, network_hop=45e-6 / NETWORK_HOP, fabric_hop=0.0,
        fabric_passage=3.5,
    ),
    # Sends between two ranks: a slow line at once, the full rate 6 us later. A peer in the domain takes 0.25 us,
    # one beyond it 2.4 us (the same over RoCE at 256 ranks, meta-pytorch/autoparallel), and the fabric once.
    Protocol(
        name="LL", families=("point",), base=8.95e-6, hop=0.25e-6 / NVLINK_HOP, network_hop=2.4e-6 / NETWORK_HOP,
        fabric_hop=0.0, fabric_passage=1.0, inside_rate=0.35, network_rate=0.35,
    ),
    Protocol(
        name="Simple", families=("point",), base=14.95e-6, hop=0.25e-6 / NVLINK_HOP,
        network_hop=2.4e-6 / NETWORK_HOP, fabric_hop=0.0, fabric_passage=1.0,
    ),
)  # fmt: skip

LIBRARY = Library(
    name="nccl",
    summary="between accelerators: rings, double binary trees, sums in NVLink switches; kernels that compete",
    algorithms={
        **dict.fromkeys(REDUCING, ("ring",)),
        "broadcast": ("ring",),
        "all-reduce": ("ring", "tree", "nvls"),
        "all-to-all": ("direct",),
        **MESSAGES,
    },
    protocols=PROTOCOLS,
    # What the installers of these plugins set: rings only for TCPX (NCCL_ALGO=Ring), rings and trees for TCPXO
    # (NCCL_ALGO=Ring,Tree and NCCL_NVLS_ENABLE=0; NVIDIA/aicr pull 422).
    kept_from={"tcpx": ("tree", "nvls"), "tcpxo": ("nvls",)},
)
