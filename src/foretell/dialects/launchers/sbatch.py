"""sbatch: a batch script for Slurm, one torchrun on each node. Options: the manual page sbatch(1)."""

from __future__ import annotations

from typing import Any

from foretell.dialects._recipe import Recipe
from foretell.dialects.launchers import exported, wrapped
from foretell.dialects.launchers.torchrun import PORT


def write(recipe: Recipe, words: list[str], own: str, variables: dict[str, str]) -> str:
    """The first node of the job is where all meet."""
    head = [
        "#!/bin/bash",
        "#SBATCH --job-name=foretell",
        f"#SBATCH --nodes={recipe.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={recipe.on_node}",
        "#SBATCH --exclusive",
        "",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        *exported(variables),
        "",
    ]
    if own:  # with the address of the first node, and the number of its own from Slurm
        inside = wrapped(own, words).replace("'", "'\\''")
        return "\n".join([*head, 'export MASTER_ADDR="$first"', f"srun bash -c '{inside}'"]) + "\n"
    torchrun = [
        '--nnodes="$SLURM_NNODES"',
        f"--nproc-per-node={recipe.on_node}",
        '--rdzv-id="$SLURM_JOB_ID"',
        "--rdzv-backend=c10d",
        f'--rdzv-endpoint="$first:{PORT}"',
    ]
    return "\n".join([*head, wrapped("srun torchrun", [*torchrun, *words])]) + "\n"


def read(document: dict[str, Any]) -> tuple[Any, Any]:
    """Nodes, and ranks of each: a device each, or a task each."""
    each = document.get("sbatch.gpus-per-node") or document.get("sbatch.ntasks-per-node") or document.get("sbatch.gres")
    if isinstance(each, str):
        tail = each.rpartition(":")[2]
        each = int(tail) if tail.isdecimal() else each
    return document.get("sbatch.nodes") or document.get("sbatch.N"), each
