"""What `foretell systems` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.cli.compare_pages import lines
from foretell.cli.plan_pages import listed
from foretell.cli.table import table
from foretell.taxonomy.advice import Advice
from foretell.taxonomy.systems import AXES, nearest
from foretell.units import show_bytes, show_seconds


def listed_page(found: Mapping[str, Any]) -> str:
    """A line a system."""
    rows = [
        [name, one.optimization, one.scheduling, f"{', '.join(one.parallelism)}; {', '.join(one.topology)}"]
        for name, one in found.items()
    ]
    return listed(["system", "optimization", "scheduling", "parallelism; topology"], rows, left=3)


def compared_page(found: Mapping[str, Any]) -> str:
    """All about each."""
    parts: list[str] = []
    for name, one in found.items():
        about = [("system", f"{one.title} ({name})"), *((axis, ", ".join(one.on(axis))) for axis in AXES)]
        about += [("remark", one.remark), ("source", one.source)]
        about += [("as a plan", one.plan)] if one.plan else []
        about += [("to simulate", one.simulate)] if one.simulate else []
        parts.append(lines(about))
    return "\n\n".join([*parts, *_differences(found)])


def _differences(found: Mapping[str, Any]) -> list[str]:
    """On which axes several systems do not lie at the same place."""
    if len(found) < 2:
        return []
    places = {axis: [", ".join(one.on(axis)) for one in found.values()] for axis in AXES}
    differing = [(f"  {axis}", "; ".join(values)) for axis, values in places.items() if len(set(values)) > 1]
    return [lines([("they differ in", "" if differing else "nothing"), *differing], 16)]


def classes_page(found: Mapping[str, Any]) -> str:
    return lines([(axis, ", ".join(values) or _nearly(found)) for axis, values in found.items()], 16)


def _nearly(found: Mapping[str, Any]) -> str:
    """Which systems would do what none does, and what keeps them from it."""
    names, axes = nearest(found)
    return f"none known; but for the {' and the '.join(axes)}: {', '.join(names)}"


def bytes_page(found: Mapping[str, Any]) -> str:
    """What travels from a worker for one update, by technique, beside the plain gradient."""
    plain = found["updates"][0].bytes
    rows = [
        [one.name, one.order, show_bytes(one.bytes), f"{one.bytes / plain:.3g}x", one.what] for one in found["updates"]
    ]
    return listed(["update", "order", "bytes", "", "what travels"], rows, left=2)


def axes_page(found: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for axis, about in found.items():
        values = [(f"  {value}", meaning) for value, meaning in about.values.items()]
        parts.append(lines([(axis, f"{about.under}; {about.source}"), *values], 24))
    return "\n\n".join(parts)


def _learnt(problem: str) -> str:
    toy = "least squares, a toy problem, not the model: --learn lenet:image=16 learns a network"
    return toy if problem == "squares" else problem


def advice_page(found: Advice) -> str:
    """What to use, why, and all techniques by what they cost."""
    step = (
        f"{found.plan}, a step of {show_seconds(found.step_seconds)}" if found.step_seconds is not None else "none fits"
    )
    about = [("model", found.model), ("on", f"{found.workers} workers of {found.cluster}"), ("use", found.use)]
    about[2:2] = [("learns", _learnt(found.learns))] if found.learns else []
    head = lines([*about, *(("why", one) for one in found.why), ("fastest plan", step)], 14)
    if not found.choices:
        return head
    rows = [
        [
            one.title.removeprefix("data parallelism, "),
            one.algorithm,
            show_seconds(one.seconds_to_target) if one.seconds_to_target is not None else "not reached",
            f"{one.costs:.1f}x" if one.costs is not None else "",
            f"{one.idle:.0%}",
        ]
        for one in found.choices
    ]
    needs = lines([(one.technique, ", ".join(one.needs)) for one in found.choices], 18)
    return f"{head}\n\n{table(['data parallelism', 'its best', 'to target', 'costs', 'idle'], rows, (0, 1))}\n\n{needs}"
