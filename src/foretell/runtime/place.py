"""Whether this process is one of many ranks already, started by torchrun or by Slurm, and which one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from foretell.errors import BadInput

PORT = "29517"
"""Where ranks of a Slurm step meet, if nothing else is said."""


class Place(NamedTuple):
    """One rank of a world; `local` is its number on its node, which runs `here` of them."""

    rank: int
    world: int
    local: int
    here: int = 1


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The place that the environment gives this process; none where it is alone."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _read(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if "SLURM_STEP_ID" in environment and environment.get("SLURM_NTASKS", "1") != "1":
        return _read(environment, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
    return None


def _read(environment: Mapping[str, str], *names: str) -> Place:
    try:
        rank, world, local, here = (int(environment.get(name) or 0) for name in names)
        return Place(rank, world, local, here or 1)
    except ValueError:
        said = ", ".join(f"{name}={environment.get(name)}" for name in names)
        raise BadInput(f"the environment names no rank: {said}", fix="torchrun, or srun") from None


def meeting_point(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What torch has to find in the environment to join, where Slurm did not put it there: the first node."""
    if "MASTER_ADDR" in environment:
        return {}
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    return {"MASTER_ADDR": _first(nodes), "MASTER_PORT": environment.get("MASTER_PORT", PORT)}


def _first(nodes: str) -> str:
    """The first host of a list that may be written short: node[03-07,9]."""
    if "[" not in nodes:
        return nodes.partition(",")[0] or "127.0.0.1"
    program = shutil.which("scontrol")
    if program is not None:
        ran = subprocess.run([program, "show", "hostnames", nodes], capture_output=True, text=True, timeout=30)
        if ran.returncode == 0 and ran.stdout.split():
            return ran.stdout.split()[0]
    stem, _, numbers = nodes.partition("[")
    return stem + numbers.partition("]")[0].partition(",")[0].partition("-")[0]
