"""What `foretell systems` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.cli.compare_pages import lines
from foretell.cli.plan_pages import listed
from foretell.cli.table import table
from foretell.taxonomy.advice import Advice, ModelCut
from foretell.taxonomy.systems import AXES, nearest
from foretell.taxonomy.would import Doings, Would
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


def doings_page(found: Doings) -> str:
    """What each system would do: its plan with a step of it, and its way of learning with the time to a loss."""
    about = [("model", found.model), ("on", found.cluster), ("batch", f"{found.batch:,} of all ranks")]
    if found.learns:
        learns = f"{found.learns}, to a loss of {found.target:.4g}, with {found.workers} workers in virtual time"
        about.append(("learns", learns))
    planned = [one for one in found.systems if one.plan]
    learning = [one for one in found.systems if one.algorithm]
    steps = listed(["system", "a step", "samples/s", "memory", "plan"], [_step(one) for one in planned], left=1)
    runs = table(["system", "to target", "samples", "learns as"], [_reached(one) for one in learning], (0, 3))
    none = [one.system for one in found.systems if not one.plan and not one.algorithm]
    left = [lines([("no preset", ", ".join(none))])] if none else []
    return "\n\n".join([lines(about), *([runs] if learning else []), *([steps] if planned else []), *left])


def _step(one: Would) -> list[str]:
    plan = f"{one.plan}: {one.why}" if one.why else one.plan
    if one.step_seconds is None or one.samples_per_second is None or one.memory_bytes is None:
        return [one.system, "-", "-", "-", plan]
    speed = f"{one.samples_per_second:,.0f}"
    return [one.system, show_seconds(one.step_seconds), speed, show_bytes(one.memory_bytes), plan]


def _reached(one: Would) -> list[str]:
    if one.seconds_to_target is None or one.samples_to_target is None:
        return [one.system, "not reached", "-", one.algorithm]
    return [one.system, show_seconds(one.seconds_to_target), f"{one.samples_to_target:,}", one.algorithm]


def _learnt(problem: str) -> str:
    """Losses are never the model's own: that would take as long as training it."""
    toy = "least squares, a toy problem, kind to averages; pip install 'foretell[run]' learns a network"
    return toy if problem == "squares" else f"{problem}, in the place of the model: --learn names another"


def advice_page(found: Advice) -> str:
    """What to use, why, and all techniques by what they cost."""
    step = (
        f"{found.plan}, a step of {show_seconds(found.step_seconds)}" if found.step_seconds is not None else "none fits"
    )
    about = [("model", found.model), ("on", f"{found.workers} workers of {found.cluster}"), ("use", found.use)]
    about[2:2] = [("learns", _learnt(found.learns))] if found.learns else []
    head = lines([*about, *(("why", one) for one in found.why), ("fastest plan", step)], 14)
    cuts = table(["model parallelism", "its best", "a step", "costs"], [_cut(one) for one in found.cuts], (0, 1))
    needs = _criteria(found)
    if not found.choices:
        return f"{head}\n\n{cuts}\n\n{needs}"
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
    learnt = table(["data parallelism", "its best", "to target", "costs", "idle"], rows, (0, 1))
    return f"{head}\n\n{learnt}\n\n{cuts}\n\n{needs}"


HEADS = ("data", "model", "rate", "overlap", "hyper-p.", "outside", "repeat")
"""The seven criteria of the taxonomy's table 2: what a technique needs of data and model, its best rate as the cluster
grows, how hard overlap is, hyper-parameters that it adds, resilience to outside influences, reproducing it."""


def _criteria(found: Advice) -> str:
    both = (*found.choices, *found.cuts)
    rows = [[one.technique, *(value or "any" for value in one.criteria.values())] for one in both]
    stale = [f"{one.technique}: weights up to {one.stale} updates old" for one in found.cuts if one.stale]
    return "\n".join([table(["asks for", *HEADS], rows, tuple(range(len(HEADS) + 1))), *stale])


def _cut(one: ModelCut) -> list[str]:
    name = "mini-batches pipelined" if one.technique == "pipelined" else "layers in shares"
    if one.step_seconds is None:
        return [name, "none fits", "-", ""]
    return [name, one.plan, show_seconds(one.step_seconds), f"{one.costs:.1f}x" if one.costs is not None else ""]
