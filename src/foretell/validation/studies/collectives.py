"""Published sweeps of collectives (nccl-tests and the like): one call each, priced without a model or a plan.

`bytes` is the size that nccl-tests prints: the whole message, of all ranks for all-gather and reduce-scatter. Links
are named as sources name them, in the tables below; else the device's own link and the network of `network_words`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from foretell.cost.collectives import Library, collective_seconds, library
from foretell.cost.fabric import Group
from foretell.hardware import catalog, members
from foretell.hardware.cluster import Cluster
from foretell.validation import hardware_words, network_words
from foretell.validation.studies._spelling import collective, size_in_bytes
from foretell.validation.study import Line, MeasuredCall, NotScored, Unmapped, mapped, real, stated, whole, whole_or

COLUMNS = frozenset({"id", "gpu", "n_gpus", "gpus_per_node", "inter_link", "collective", "bytes", "time_us"})

DEVICES: Final = {
    "A100-80GB": "a100-80",
    "A100-SXM4": "a100-80",
    "A100-SXM4-40GB (BM.GPU.B4.8)": "a100-40",
    "A100-SXM4-40GB (p4d)": "a100-40",
    "A100-SXM4-80GB": "a100-80",
    "P100-PCIe": "p100-pcie",
    "Titan X (Pascal)": "titanx",
    "V100-SXM2-16GB (BM.GPU3.8)": "v100-16",
    "V100-SXM3-32GB (DGX-2)": "v100-sxm3-32",
}

INSIDE: Final = {
    "NVLink2 hybrid cube mesh": "nvlink2-mesh",
    "NVLink2+NVSwitch": "nvlink2-switch",
    "NVLink3+NVSwitch": "nvlink3-switch",
    "NVLink4+NVSwitch": "nvlink4-switch",
    "NVLink4+NVSwitch (NVLS)": "nvlink4-switch",
    "NVLink5+NVSwitch": "nvlink5-switch",
    "NVLink bridge": "nvlink-bridge",
    "Infinity Fabric": "infinity-fabric",
    "a node of a rack by itself": "nvlink5-switch",
    "PCIe gen3 x16, dual root, PLX switches (8-GPU node)": "pcie3-two-roots",
    "PCIe gen3 x16, single root, PLX switches (10-GPU node)": "pcie3",
    "PCIe gen3 x16, P2P unavailable (via host memory)": "pcie3-no-peer",
}

NETWORKS: Final = {  # ports of a node and link; the number of ports is the source's, or that of the machine it names
    "EFA 32x100Gb/s": "32xefa2",
    "EFA v3 16x200Gb/s": "16xefa3",
    "EFA 4x100Gb/s": "4xefa1",
    "EFA 1x100Gb/s": "1xefa1",
    "InfiniBand HDR": "1xib-hdr",
    "InfiniBand HDR + SHARP": "8xib-hdr",
    "InfiniBand NDR 8x400Gb/s": "8xib-ndr",
    "InfiniBand NDR 8x400Gb/s + SHARP": "8xib-ndr",
    "InfiniBand NDR 8x400Gb/s (not restated)": "8xib-ndr",
    "InfiniBand FDR 56Gb/s": "1xib-fdr",
    "GPUDirect-TCPXO 8x200Gb/s Ethernet": "8xtcpxo",
    "GPUDirect-TCPX 4x200Gb/s Ethernet": "4xtcpx",
    "RoCE 8x400Gb/s (ConnectX-7)": "8xroce-400",
    "RoCE 1x400Gb/s per GPU": "1xroce-400",
    "RoCE cluster network (16x100Gb/s class, not stated)": "16xroce-100",
    "RoCE cluster network (8x400Gb/s class, not stated)": "8xroce-400",
    "RoCE cluster network (not stated)": "8xroce-400",
    "TCP over Ethernet (InfiniBand disabled)": "1xeth-100",
    "ENA TCP (no EFA)": "1xeth-100",
    "ENA TCP 1 interface": "1xeth-100",
    "TCP Ethernet (GPUDirect-TCPX off)": "4xeth-200",
    "RDMA between NVLink domains (rate not stated)": "4xroce-800",
    "RDMA between cliques (4 NICs a node, rate not stated)": "4xroce-400",
}

APART: Final = ("in distinct NVLink domains", "2n D=2")
"""How sources say that each node of a rack is an NVLink domain of its own."""

OWN_DOMAIN: Final = "a node of a rack by itself"

KINDS: Final = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "sendrecv": "shift",
}
SIZES: Final = {"small": (0, 2**16), "middle": (2**16, 2**26 + 1), "large": (2**26 + 1, 2**62)}
"""Below 64 KiB, to 64 MiB, and above."""

ONE_PROCESS: Final = 3.2e-6
"""Host time per GPU where one process drives several (12 V100 and 8 A100 agree)."""
PYTORCH_BENCH: Final = 29e-6
"""Host time where a PyTorch program was timed rather than nccl-tests."""
UNTUNED: Final = 0.43 / 0.8
"""What default settings reached of the tuned all-to-all rate over NDR, in the one report that has both."""


def rows(lines: list[Line]) -> Iterator[MeasuredCall | NotScored]:
    """Every call of every source."""
    return mapped(((line["id"], line) for line in lines), call)


def call(name: str, line: Line) -> MeasuredCall:
    """One call with its price."""
    line = size_in_bytes(line)
    unscored(line)
    n, size, kind = whole(line, "n_gpus"), whole(line, "bytes"), kind_of(line)
    cluster = cluster_of(line)
    price = collective_seconds(kind, payload(kind, size, n), Group(n), cluster, library=library_of(line))
    return MeasuredCall(
        id=name,
        what=f"{kind} of {size:,} B on {cluster.text}{' untuned' if untuned(line) else ''}",
        seconds=real(line, "time_us") * 1e-6,
        predicted=price.seconds + host_seconds(line),
        chosen=f"{price.algorithm} {price.protocol}",
        subsets=(line.get("source", ""), kind, size_class(size)),
    )


def size_class(size: int) -> str:
    """Small, middle or large."""
    return next(name for name, (least, most) in SIZES.items() if least <= size < most)


def unscored(line: Line) -> None:
    """Why a line has no price to compare, raised."""
    if not line.get("bytes") or not real(line, "time_us"):
        raise Unmapped("a bandwidth without a size")
    if any(name in line.get("comment", "") for name in ("Baidu", "OSU")):
        raise Unmapped("won by another library than NCCL")


def kind_of(line: Line) -> str:
    """The collective as programs call it."""
    word = collective(stated(line, "collective"))
    if word not in KINDS:
        raise Unmapped(f"collective {line['collective']} is not known")
    return KINDS[word]


def payload(kind: str, size: int, ranks: int) -> float:
    """Bytes that a rank brings."""
    return size / ranks if kind == "all-gather" else size


def cluster_of(line: Line) -> Cluster:
    """The cluster that a line was measured on."""
    ranks = whole(line, "n_gpus")
    per_node = min(whole_or(line, "gpus_per_node", 0) or 0, ranks)
    inside = OWN_DOMAIN if any(words in line.get("comment", "") for words in APART) else line.get("intra_link", "")
    return _cluster(stated(line, "gpu"), ranks, per_node, inside, line.get("inter_link", ""), untuned(line))


@cache
def _cluster(gpu: str, ranks: int, per_node: int, inside: str, network: str, slow: bool) -> Cluster:
    name = DEVICES.get(gpu) or hardware_words.device(gpu)
    usual = members.device(name).node
    node = per_node or min(usual.size, ranks)
    if usual.domain > usual.size and inside != OWN_DOMAIN:
        return _rack(name, usual.domain, ranks, network)
    if ranks % node:
        raise Unmapped(f"{ranks} GPUs are not whole nodes of {node}")
    links = [INSIDE[inside]] if inside in INSIDE else []
    between = NETWORKS.get(network) or str(network_words.network(network, node) or "")
    if ranks > node and network and not between:
        raise Unmapped(f"no link is known for {network}")
    cluster = catalog.cluster(",".join([f"{ranks // node}x{node}x{name}", *links, *([between] if between else [])]))
    return _slowed(cluster) if slow else cluster


def _rack(name: str, domain: int, ranks: int, network: str) -> Cluster:
    """Devices of racks that are one NVLink domain each."""
    if ranks % domain == 0 and name == "gb200":
        return catalog.cluster("gb200-nvl72" if ranks == domain else f"{ranks // domain}xgb200-nvl72")
    if network:
        raise Unmapped("parts of a rack in several NVLink domains cannot be written as a cluster")
    return catalog.cluster(f"{ranks}x{name}")


def _slowed(cluster: Cluster) -> Cluster:
    """The same cluster with what an untuned fabric reaches in exchanges."""
    replace = msgspec.structs.replace
    *inner, outer = cluster.levels
    point = {name: outer.link.efficiency_of(name, 16) * UNTUNED for name in ("all_to_all", "point")}
    link = replace(outer.link, efficiency=outer.link.efficiency | point)
    return replace(cluster, levels=(*inner, replace(outer, link=link)))


def untuned(line: Line) -> bool:
    """Whether a source says that its network was as it came."""
    return bool(line.get("inter_link")) and "default settings" in line.get("comment", "")


def library_of(line: Line) -> Library:
    """NCCL, with what the run was held to."""
    comment = line.get("comment", "")
    if "NVLS_ENABLE=0" in comment or "NCCL_ALGO ring" in comment:
        return library("nccl").only("ring")
    return library("nccl").only("nvls") if "NCCL_ALGO nvlstree" in comment else library("nccl")


def host_seconds(line: Line) -> float:
    """What the way of timing adds."""
    comment = line.get("comment", "").lower()
    if "all_reduce_bench.py" in comment:
        return PYTORCH_BENCH
    one = "single process" in comment or "12 of 16 gpus" in comment or "-g 8" in comment
    return ONE_PROCESS * whole(line, "n_gpus") if one else 0.0
