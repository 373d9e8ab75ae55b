"""How much of a space a search looked at, and what is proven of the rest."""

from __future__ import annotations

from foretell.cli.table import folded
from foretell.oracle.search_result import OUT_OF_TIME, SearchResult
from foretell.units import show_percent
from foretell.units import show_seconds as seconds

SMALL = 0.0005
"""A part of a step that is printed as nothing."""

LITTLE = 0.01
"""The least share of a space that is told as a number."""


def looked_at(found: SearchResult) -> str:
    """Of which part of the space something is the fastest, where the search ended before its end."""
    if found.seen == 1:
        return ""
    return f" of the {_share(found.seen)} of all meshes that were looked at"


def _share(seen: float) -> str:
    """Not all of it is never told as all, and little not as nothing."""
    return show_percent(min(seen, 1 - LITTLE), 0) if seen >= LITTLE else f"less than {show_percent(LITTLE, 0)}"


def amount(found: SearchResult, everything: bool = True) -> str:
    """How much was looked at, what is proven of the rest, and how long it took."""
    refused = found.candidates - found.evaluated
    counts = [f"{found.evaluated:,} plans priced"]
    counts += [f"{found.excluded:,} pruned by lower bounds"] if found.excluded else []
    counts += [f"{refused:,} refused"] if refused else []
    lines = [f"{', '.join(counts)}, {found.seconds:.3g} s"]
    if not found.complete or (found.best is not None and not found.ways):
        lines.append(_proven(found) if found.complete else stopped(found))
    if not everything:
        lines.append("--all prints the best plan of each mesh, the Pareto front, and what was refused")
    return "\n".join(folded(line, 2) for line in lines)


def _proven(found: SearchResult) -> str:
    """What is known of all plans that are not in front: of the space, and of stages and parts chosen for some."""
    fastest = found.fastest or found.best
    assert fastest is not None
    if found.least_seconds >= (1 - SMALL) * fastest.step_seconds:
        return "the fastest plan is proven optimal in this space"
    more = show_percent(1 - found.least_seconds / fastest.step_seconds)
    return f"the fastest plan is proven optimal in this space; other stages or parts gain at most {more}"


def stopped(found: SearchResult) -> str:
    """How much of the space was seen, and what could still be faster."""
    if found.seen == 1.0:
        return f"{found.stopped} while stages and parts were chosen: all meshes were looked at"
    share, gap = _share(found.seen), show_percent(found.gap, 0)
    least = f"; no plan can be faster than {seconds(found.least_seconds)}, {gap} less" if found.gap else ""
    more = "; --seconds 120 looks further" if found.stopped == OUT_OF_TIME else ""
    return f"{found.stopped}: {share} of {found.meshes:,} meshes looked at, the likely ones first{least}{more}"
