"""Whether this process is one of many ranks already, started by torchrun or by Slurm, and which one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from foretell.errors import BadInput

PORTS = range(20_000, 32_000)
"""Where ranks of a Slurm step meet, if nothing else is said: each step at a port of its own, so that two on one host do
not meet each other. Below those that systems give to whoever asks for any."""


class RankPlace(NamedTuple):
    """One rank of a world; `local` is its number on its node, which runs `here` of them."""

    rank: int
    world: int
    local: int
    here: int = 1
    by_srun: bool = False  # which may let each rank see a GPU of its own


def place(environment: Mapping[str, str] = os.environ) -> RankPlace | None:
    """The place that the environment gives this process; none where it is alone."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _read(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if _of_step(environment):
        found = _read(environment, "SLURM_PROCID", _tasks(environment), "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
        return found._replace(here=_tasks_here(environment) or found.here, by_srun=True)
    return None


def bound(here: RankPlace, cores: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the cores that this process may use are its own: srun gave each of its tasks some of the node's."""
    given = environment.get("SLURM_CPUS_ON_NODE", "")
    return here.by_srun and given.isdigit() and cores * here.here <= int(given)


def by_srun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a task of srun's, and not of a torchrun that srun started."""
    found = place(environment)
    return found is not None and found.by_srun


def _of_step(environment: Mapping[str, str]) -> bool:
    """Whether srun started several like this one. A shell of sbatch has a SLURM_PROCID too."""
    return "SLURM_STEP_ID" in environment and environment.get(_tasks(environment), "1") != "1"


def _tasks(environment: Mapping[str, str]) -> str:
    """The variable that counts the processes. In a shell that Slurm opened SLURM_NTASKS are those of the whole job."""
    return "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"


def _tasks_here(environment: Mapping[str, str]) -> int:
    """Processes of a step on this node, of a list by nodes that is written short: 4(x2),3; 0 where there is none."""
    written = re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    nodes = [int(tasks) for tasks, times in written for _ in range(int(times or 1))]
    node = environment.get("SLURM_NODEID", "0")
    return nodes[int(node)] if node.isdigit() and int(node) < len(nodes) else 0


def _read(environment: Mapping[str, str], *names: str) -> RankPlace:
    try:
        rank, world, local, here = (int(environment.get(name) or 0) for name in names)
        return RankPlace(rank, world, local, here or 1)
    except ValueError:
        said = ", ".join(f"{name}={environment.get(name)}" for name in names)
        raise BadInput(f"the environment names no rank: {said}", fix="torchrun, or srun") from None


def meeting_point(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What torch has to find in the environment to join, where Slurm did not put it there: the first node."""
    if "MASTER_ADDR" in environment:
        return {}
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    return {"MASTER_ADDR": _first(nodes), "MASTER_PORT": environment.get("MASTER_PORT") or str(_port(environment))}


def _port(environment: Mapping[str, str]) -> int:
    """The same for all ranks of a step."""
    job, step = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return PORTS[sum(int(number) for number in (job, step) if number.isdigit()) % len(PORTS)]


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
