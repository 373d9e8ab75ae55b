"""Which operators a part of the model means: `conv1..pool2`, `fc*`, `layers.3`."""

from __future__ import annotations

import fnmatch

from foretell.errors import BadInput, near
from foretell.model.graph import Graph


def members(graph: Graph, only: str) -> frozenset[tuple[int, int]] | None:
    """The (block, node) of a part; everything is None. A repeated block belongs to it whole or not at all."""
    if not only:
        return None
    order = [(at, index, node.path) for at, block in enumerate(graph.blocks) for index, node in enumerate(block.nodes)]
    first, dots, last = only.partition("..")
    starts = [n for n, (_, _, path) in enumerate(order) if _is_part(path, first)]
    ends = [n for n, (_, _, path) in enumerate(order) if _is_part(path, last)] if dots else starts
    for name, found in ((first, starts), (last, ends)):
        if not found and (dots or name == first):
            paths = {path for _, _, path in order if path}
            fix = ", ".join(near(name, paths) or sorted(paths)[:8])
            raise BadInput(f"no part of {graph.name} is called {name!r}", where=f"[{only}]", fix=fix)
    if not dots:
        return frozenset((order[n][0], order[n][1]) for n in starts)
    if ends[-1] < starts[0]:
        raise BadInput(f"{last!r} comes before {first!r}", where=f"[{only}]", fix=f"[{last}..{first}]")
    return frozenset((at, index) for at, index, _ in order[starts[0] : ends[-1] + 1])


def _is_part(path: str, name: str) -> bool:
    """Whether a path is this module, lies in it, or matches a pattern with stars."""
    return path == name or path.startswith(f"{name}.") or fnmatch.fnmatchcase(path, name)
