"""How ranks are started: one file a launcher. A launcher writes a command or a script, and is read for its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.dialects._recipe import Recipe
from foretell.errors import unknown
from foretell.registry import OpenSet

OPTIONS = ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "standalone", "max-restarts")
"""Of torchrun, in scripts."""

LAUNCHERS = OpenSet(__name__, "launcher")


def names() -> tuple[str, ...]:
    """The launchers that there are."""
    return tuple(LAUNCHERS)


def launch(
    name: str, recipe: Recipe, words: Sequence[str], own: str = "", variables: Mapping[str, str] | None = None
) -> str:
    """The text that starts `words` on all ranks of a recipe, with these variables of the environment.

    `own`: what starts the ranks of a node itself.
    """
    if name not in names():
        raise unknown("launcher", name, names()).within("--launch")
    text: str = LAUNCHERS[name].write(recipe, list(words), own, dict(variables or {}))
    return text


def started(document: dict[str, Any]) -> dict[str, Any]:
    """The ranks that the launcher of a script starts; nothing where only a running shell knows them."""
    for name in names():
        nodes, each = LAUNCHERS[name].read(document)
        if isinstance(nodes, int) and isinstance(each, int) and nodes > 0 and each > 0:
            return {"ranks": nodes * each, "per_node": each}
    return {}


def launching(key: str) -> bool:
    """Whether an option of a script is one of its launcher's."""
    word = key.replace("_", "-")
    return word in OPTIONS or word.startswith(("sbatch.", "rdzv-"))


def exported(variables: Mapping[str, str]) -> list[str]:
    """Lines of a script that set variables."""
    return [f"export {name}={value}" for name, value in variables.items()]


def wrapped(first: str, words: Sequence[str], indent: str = "    ") -> str:
    """A command over several lines."""
    return f" \\\n{indent}".join([first, *words])
