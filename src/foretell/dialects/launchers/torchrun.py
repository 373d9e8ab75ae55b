"""torchrun: one command on each node. Options: PyTorch 2.13, torch/distributed/run.py."""

from __future__ import annotations

from typing import Any

from foretell.dialects._recipe import Recipe
from foretell.dialects.launchers import exported, wrapped

PORT = 29500


def write(recipe: Recipe, words: list[str], own: str, variables: dict[str, str]) -> str:
    """On one node by itself; on several each node runs the same with MASTER_ADDR set to the first."""
    if own:
        return "\n".join([*exported(variables), wrapped(own, words)]) + "\n"
    lines = [f"--nnodes={recipe.nodes}", f"--nproc-per-node={recipe.on_node}"]
    if recipe.nodes == 1:
        lines.append("--standalone")
    else:
        lines += ["--rdzv-backend=c10d", f'--rdzv-endpoint="$MASTER_ADDR:{PORT}"']
    return "\n".join([*exported(variables), wrapped("torchrun", [*lines, *words])]) + "\n"


def read(document: dict[str, Any]) -> tuple[Any, Any]:
    """Nodes, and ranks of each."""
    each = document.get("nproc-per-node", document.get("nproc_per_node"))
    return document.get("nnodes", 1 if each else None), each
