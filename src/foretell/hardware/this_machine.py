"""The machine foretell runs on, found without torch: cores and memory, and GPUs where nvidia-smi is."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from foretell.hardware import cgroup, members
from foretell.hardware.cluster import Cluster, Device, DeviceGroup, Level
from foretell.hardware.reading import ClusterFile

_PATIENCE = 5.0
"""Seconds that nvidia-smi gets: it can hang where a driver is broken."""


@functools.cache
def machine() -> ClusterFile:
    """This machine: its GPUs when they are known devices, otherwise its processor, a rank a core."""
    found = (_from_gpus(_gpu_names()) if gpus() else None) or processor()
    return ClusterFile(found, None, 1)


def gpus() -> int:
    """GPUs of this machine that CUDA lets a program see, by nvidia-smi, which tells of all of them."""
    there = len(_gpu_names())
    return there if (said := os.environ.get("CUDA_VISIBLE_DEVICES")) is None else min(there, _visible(said, there))


def _visible(said: str, there: int) -> int:
    """GPUs of a list of numbers and names; what is no GPU hides all that come after it."""

    def known(word: str) -> bool:
        return word.startswith(("GPU-", "MIG-")) or (word.isdigit() and int(word) < there)

    return len(list(itertools.takewhile(known, map(str.strip, said.split(",")))))


def _from_gpus(names: list[str]) -> Cluster | None:
    """A cluster of the GPUs that nvidia-smi names, when all are the same known device."""
    device = known_device(names[0]) if names and len(set(names)) == 1 else None
    return of_devices(device.name, len(names)) if device is not None else None


def of_devices(name: str, count: int) -> Cluster:
    """One node with so many of a device."""
    device = members.device(name)
    level = Level("node", count, members.link(device.node.link))
    return _named(f"{count} x {device.title}", device, level, "counted by nvidia-smi")


def processor(cores: int = 0, title: str = "", memory_bytes: int = 0) -> Cluster:
    """The cores of this machine, a rank each; or those of another one, with the memory that each of them has."""
    if not cores:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    device = _one_core(title or f"a core of {_processor()}", memory_bytes or _memory_bytes() // cores)
    level = Level("node", cores, members.link("loopback"))
    return _named(f"{cores} x {device.title}", device, level, "found by the operating system")


def _named(title: str, device: Device, node: Level, source: str) -> Cluster:
    return Cluster(
        name="this-machine",
        title=f"this machine: {title}",
        groups=(DeviceGroup(device, node.size),),
        levels=(node,),
        text="this-machine",
        sources={"levels[0].size": source},
    )


def _one_core(title: str, memory_bytes: int) -> Device:
    """One core with its share of what the host has; rates are those of `cpu`, a core each."""
    host = members.device("cpu")
    share = 1 / host.multiprocessors
    sources = {key: f"a core's share of cpu: {text}" for key, text in host.sources.items()}
    sources["memory"] = "a core's share of the memory that the operating system reports"
    sources["multiprocessors"] = "a rank is one core"
    return msgspec.structs.replace(
        host,
        name="cpu-core",
        title=title,
        memory_bytes=memory_bytes,
        memory_bandwidth=host.memory_bandwidth * share,
        cache_bytes=round(host.cache_bytes * share),
        multiprocessors=1,
        peak={key: rate * share for key, rate in host.peak.items()},
        vector={key: rate * share for key, rate in host.vector.items()},
        power_watts=host.power_watts * share,
        sources=sources,
    )


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return members.device("cpu").memory_bytes


def free_bytes() -> int:
    """Memory that programs can still have, as Linux tells it; elsewhere all that there is."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return _memory_bytes()
    return min([free, *cgroup.free_bytes()])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "an unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "an unknown processor"


def driver() -> str:
    """The version of the GPUs' driver; empty where nobody tells."""
    return next(iter(_asked("driver_version")), "").strip()


def clocks() -> dict[str, float]:
    """Hz that the driver reports of the first GPU: now, of multiprocessors and memory."""
    lines = _asked("clocks.sm,clocks.mem")
    values = lines[0].replace("MHz", "").split(",") if lines else []
    try:
        return {name: 1e6 * float(value) for name, value in zip(("sm", "memory"), values, strict=False)}
    except ValueError:  # [N/A]
        return {}


def _gpu_names() -> list[str]:
    return _asked("name")


def _asked(what: str) -> list[str]:
    """What nvidia-smi says, a line a GPU; nothing where it is not there."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in ran.stdout.splitlines() if line.strip()] if ran.returncode == 0 else []


def known_device(reported: str) -> Device | None:
    """The device that the driver calls `reported`: 'NVIDIA A100-SXM4-80GB' is a100-80."""
    plain = reported.lower().removeprefix("nvidia ").strip()
    if plain in _CARDS:
        return members.device(_CARDS[plain])
    words = set(re.findall(r"[a-z0-9]+", plain))
    for name, pattern in _REPORTED.items():
        if pattern <= words:
            return members.device(name)
    return None


_CARDS = {
    "geforce gtx 1080": "gtx1080",
    "geforce gtx 1080 ti": "gtx1080ti",
    "titan x (pascal)": "titanx",
    "titan xp": "titanxp",
    "titan rtx": "titanrtx",
    "geforce gtx titan x": "titanx-maxwell",
    "geforce rtx 2080 ti": "rtx2080ti",
    "geforce rtx 3090": "rtx3090",
    "geforce rtx 4090": "rtx4090",
    "geforce rtx 5090": "rtx5090",
    "rtx pro 6000 blackwell workstation edition": "rtxpro6000",
    "rtx pro 6000 blackwell server edition": "rtxpro6000",
    "quadro rtx 8000": "rtx8000",
    "rtx a6000": "a6000",
    "rtx 6000 ada generation": "rtx6000ada",
}
"""Names of cards that have close relatives (Ti, Laptop), so that only the whole name will do."""


_REPORTED: dict[str, set[str]] = {
    "gb300": {"gb300"},
    "gb200": {"gb200"},
    "b300": {"b300"},
    "b200": {"b200"},
    "h200": {"h200"},
    "gh200": {"gh200", "480gb"},
    "h20": {"h20"},
    "h800": {"h800"},
    "h100-nvl": {"h100", "nvl"},
    "h100-pcie": {"h100", "pcie"},
    "h100": {"h100"},
    "a100-pcie-40": {"a100", "pcie", "40gb"},
    "a100-pcie-80": {"a100", "80gb", "pcie"},
    "a100-80": {"a100", "80gb"},
    "a100-40": {"a100", "40gb"},
    "v100-pcie-16": {"v100", "pcie", "16gb"},
    "v100-pcie-32": {"v100", "pcie", "32gb"},
    "v100-sxm3-32": {"v100", "sxm3", "32gb"},
    "v100-32": {"v100", "32gb"},
    "v100-16": {"v100", "16gb"},
    "l40s": {"l40s"},
    "l40": {"l40"},
    "l4": {"l4"},
    "a10g": {"a10g"},
    "a10": {"a10"},
    "a30": {"a30"},
    "t4": {"t4"},
    "p40": {"p40"},
    "p100": {"p100", "sxm2"},
    "p100-pcie": {"p100", "pcie", "16gb"},
    "k80": {"k80"},
    "m40": {"m40"},
}
"""Device to the words that the driver's name for it must have, special ones first."""
