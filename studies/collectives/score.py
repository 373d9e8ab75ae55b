"""Scores the prices of collectives against published sweeps: python studies/collectives/score.py [--rows]"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretell.cost.collectives import Library, collective_seconds, library
from foretell.cost.fabric import Group
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster

HERE = Path(__file__).parent

DEVICES = {
    "A100-80GB": "a100-80",
    "A100-SXM4": "a100-80",
    "A100-SXM4-40GB (BM.GPU.B4.8)": "a100-40",
    "A100-SXM4-40GB (p4d)": "a100-40",
    "A100-SXM4-80GB": "a100-80",
    "B200 (HGX)": "b200",
    "B200 (a4)": "b200",
    "B200 (p6-b200)": "b200",
    "GB200 NVL72": "gb200",
    "GTX 1080 Ti": "gtx1080ti",
    "H100-PCIe-80GB": "h100-pcie",
    "MI300X": "mi300x",
    "MI300X (BM.GPU.MI300X.8)": "mi300x",
    "P100-PCIe": "p100-pcie",
    "RTX 2080 Ti 11GB": "rtx2080ti",
    "Titan X (Pascal)": "titanx",
    "V100-SXM2-16GB (BM.GPU3.8)": "v100-16",
    "V100-SXM3-32GB (DGX-2)": "v100-sxm3-32",
}

INSIDE = {
    "NVLink2 hybrid cube mesh": "nvlink2-mesh",
    "NVLink2+NVSwitch": "nvlink2-switch",
    "NVLink3+NVSwitch": "nvlink3-switch",
    "NVLink4+NVSwitch": "nvlink4-switch",
    "NVLink4+NVSwitch (NVLS)": "nvlink4-switch",
    "NVLink5+NVSwitch": "nvlink5-switch",
    "NVLink bridge": "nvlink-bridge",
    "Infinity Fabric": "infinity-fabric",
    "PCIe gen3 x16, dual root, PLX switches (8-GPU node)": "pcie3-two-roots",
    "PCIe gen3 x16, single root, PLX switches (10-GPU node)": "pcie3",
    "PCIe gen3 x16, P2P unavailable (via host memory)": "pcie3-no-peer",
}

NETWORKS = {  # ports of a node and link; the number of ports is the source's, or that of the machine it names
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
}

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
    "send_recv": "shift",
}

SIZES = {"small": (0, 2**16), "middle": (2**16, 2**26 + 1), "large": (2**26 + 1, 2**62)}
"""Below 64 KiB, to 64 MiB, and above."""

ONE_PROCESS = 3.2e-6
"""Host time per GPU where one process drives several (12 V100 and 8 A100 agree)."""
PYTORCH_BENCH = 29e-6
"""Host time where a PyTorch program was timed rather than nccl-tests."""
UNTUNED = 0.43 / 0.8
"""What default settings reached of the tuned all-to-all rate over NDR, in the one report that has both."""


class Row(NamedTuple):
    """One measured collective and what is predicted for it."""

    id: str
    collective: str
    size: int
    where: str
    measured: float
    predicted: float
    chosen: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def size_class(self) -> str:
        return next(name for name, (least, most) in SIZES.items() if least <= self.size < most)


def rows() -> Iterator[Row | str]:
    """Every row of the file, predicted, or the reason why it is not."""
    with (HERE / "measured.csv").open() as file:
        for row in csv.DictReader(file):
            yield _why_not(row) or _predicted(row)


def _why_not(row: dict[str, str]) -> str:
    if not row["time_us"]:
        return "a bandwidth without a size"
    if any(name in row["comment"] for name in ("Baidu", "OSU")):
        return "won by another library than NCCL"
    return ""


def _predicted(row: dict[str, str]) -> Row:
    n, size, kind = int(row["n_gpus"]), int(row["bytes"]), KINDS[row["collective"]]
    cluster = _cluster(row["gpu"], n, int(row["gpus_per_node"]), row["intra_link"], row["inter_link"], _untuned(row))
    payload = size / n if kind == "all-gather" else size
    price = collective_seconds(kind, payload, Group(n), cluster, library=_library(row))
    return Row(
        row["id"],
        row["collective"],
        size,
        f"{cluster.text}{' untuned' if _untuned(row) else ''}",
        float(row["time_us"]) * 1e-6,
        price.seconds + _host(row),
        f"{price.algorithm} {price.protocol}",
    )


@cache
def _cluster(gpu: str, ranks: int, per_node: int, inside: str, network: str, untuned: bool) -> Cluster:
    if gpu == "GB200 NVL72":
        return catalog.cluster("gb200-nvl72" if ranks == 72 else f"{ranks // 72}xgb200-nvl72")
    name = DEVICES.get(gpu) or gpu.split("-")[0].lower()
    links = [INSIDE[inside]] if inside else []
    links += [NETWORKS[network]] if network else []
    cluster = catalog.cluster(",".join([f"{ranks // per_node}x{per_node}x{name}", *links]))
    return _slowed(cluster) if untuned else cluster


def _slowed(cluster: Cluster) -> Cluster:
    """The same cluster with what an untuned fabric reaches in exchanges."""
    replace = msgspec.structs.replace
    *inner, outer = cluster.levels
    point = {name: outer.link.efficiency_of(name, 16) * UNTUNED for name in ("all_to_all", "point")}
    link = replace(outer.link, efficiency=outer.link.efficiency | point)
    return replace(cluster, levels=(*inner, replace(outer, link=link)))


def _untuned(row: dict[str, str]) -> bool:
    return bool(row["inter_link"]) and "default settings" in row["comment"]


def _library(row: dict[str, str]) -> Library:
    """What the run was held to."""
    if "NVLS_ENABLE=0" in row["comment"] or "NCCL_ALGO ring" in row["comment"]:
        return library("nccl").only("ring")
    return library("nccl").only("nvls") if "NCCL_ALGO nvlstree" in row["comment"] else library("nccl")


def _host(row: dict[str, str]) -> float:
    comment = row["comment"].lower()
    if "all_reduce_bench.py" in comment:
        return PYTORCH_BENCH
    one = "single process" in comment or "12 of 16 gpus" in comment or "-g 8" in comment
    return ONE_PROCESS * int(row["n_gpus"]) if one else 0.0


def summary(found: Iterable[Row]) -> tuple[float, float, int]:
    """Median and 90th percentile of the relative error, and how many rows."""
    errors = sorted(abs(row.error) for row in found)
    if len(errors) < 2:
        return (errors[0], errors[0], 1) if errors else (0.0, 0.0, 0)
    return statistics.median(errors), statistics.quantiles(errors, n=10, method="inclusive")[-1], len(errors)


def table(found: list[Row], by: str) -> Iterator[str]:
    """Errors in per cent, median / 90th percentile (rows), a line for each value of a field."""
    yield f"{by:<44}" + "".join(f"{name:>18}" for name in (*SIZES, "all"))
    for value in sorted({getattr(row, by) for row in found}):
        yield _line(value, [row for row in found if getattr(row, by) == value])
    yield _line("all", found)


def _line(name: str, found: list[Row]) -> str:
    classes = [[row for row in found if row.size_class == size] for size in SIZES]
    cells = [f"{median:.0%} / {most:.0%} ({count})" for median, most, count in map(summary, [*classes, found])]
    return f"{name:<44}" + "".join(f"{cell if not cell.endswith('(0)') else '-':>18}" for cell in cells)


def main() -> None:
    outcomes = list(rows())
    found = [row for row in outcomes if isinstance(row, Row)]
    reasons = [row for row in outcomes if isinstance(row, str)]
    if "--rows" in sys.argv:
        for row in found:
            print(f"{row.id:<12}{row.collective:<12}{row.size:>12} {row.where:<34}{row.measured:10.3e}"
                  f"{row.predicted:11.3e}{row.error:8.0%}  {row.chosen}")  # fmt: skip
    print("\n".join(table(found, "collective")), "\n")
    print("\n".join(table(found, "where")), "\n")
    print(f"{len(outcomes)} rows: {len(found)} scored, {len(reasons)} not:")
    for reason in sorted(set(reasons)):
        print(f"  {reasons.count(reason):>4}  {reason}")


if __name__ == "__main__":
    main()
