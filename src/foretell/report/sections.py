"""From answers to pages: which charts and tables go under which heading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.oracle import similar
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.report.bibliography import papers
from foretell.report.charts import breakdown, errors, memory, memory_time, pareto, scaling, timeline
from foretell.report.charts.memory_time import Moment
from foretell.report.charts.pareto import Dot
from foretell.report.page import Card, Page, Section
from foretell.report.svg import Chart
from foretell.units import show_bytes, show_count, show_rate, show_seconds

if TYPE_CHECKING:
    from foretell.cost.peak_breakdown import Alive
    from foretell.oracle.predict import Prediction
    from foretell.oracle.scale import Scaling
    from foretell.oracle.search import Found
    from foretell.program.expanded import ExpandedProgram
    from foretell.timeline.simulate import Simulated

WORK = ("activations", "working")
"""Kinds of memory that come and go within a step."""


def prediction_page(
    found: Prediction,
    setting: Setting,
    program: ExpandedProgram,
    simulated: Simulated,
    alive: Sequence[Alive],
    notes: Sequence[str] = (),
    more: Sequence[Section] = (),
) -> Page:
    """A page about one step."""
    place = f"{found.ranks:,} {'rank' if found.ranks == 1 else 'ranks'} of {found.cluster}"
    return Page(
        title=f"{found.model}, batch {found.batch:,}, on {place}",
        plan=found.plan,
        cards=headline(found),
        sections=(
            time_section(found),
            memory_section(found, setting, program),
            Section("Alive at the fullest moment", columns=("tensor", "how many", "bytes"), rows=_alive(alive)),
            Section("Timeline", "", (timeline.draw(simulated),)),
            *more,
            Section("How it is known", "", columns=("part", "evidence"), rows=_known(found)),
            accuracy_section(),
        ),
        notes=tuple(notes),
        papers=papers(found.model, parse(found.plan)),
    )


def time_section(found: Prediction) -> Section:
    """What a step is spent on, and what limits it."""
    chart = breakdown.draw({"a step": found.breakdown}, {"a step": found.interval})
    return Section("Where the time goes", "", (chart,), ("what limits it", "why", "relief"), _bottlenecks(found))


def memory_section(found: Prediction, setting: Setting, program: ExpandedProgram) -> Section:
    """What memory is taken by, and when."""
    return Section("Memory", f"The fullest moment is {found.memory.peak_moment}.", _memory(found, setting, program))


def headline(found: Prediction) -> tuple[Card, ...]:
    """The figures that a person looks for first."""
    low, high = map(show_seconds, found.interval)
    room = f"of {show_bytes(found.usable)} that a run may use"
    verdict = room if found.fits else f"{show_bytes(found.memory_bytes - found.usable)} too much"
    rate = f"{show_count(found.tokens_per_second)} tokens/s" if found.tokens_per_second else ""
    cards = [
        Card("a step", show_seconds(found.step_seconds), f"nine in ten between {low} and {high}"),
        Card("samples a second", show_rate(found.samples_per_second), rate),
        Card("memory of a rank", show_bytes(found.memory_bytes), verdict),
        Card("of the peak", f"{found.utilisation:.1%}", f"trainer {found.trainer}"),
    ]
    if found.accuracy:
        runs = f"median of {found.accuracy.runs:,} similar runs"
        cards.append(Card("error so far", f"{found.accuracy.median_error:.1%}", runs))
    return tuple(cards)


def _bottlenecks(found: Prediction) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{one.kind}: {one.name}", one.why, one.relief) for one in found.bottlenecks)


def _memory(found: Prediction, setting: Setting, program: ExpandedProgram) -> tuple[Chart, ...]:
    kinds = memory.draw(found.memory.by_kind, found.usable, found.capacity, found.memory.peak_moment)
    moments, resting, rank = over_time(found, setting, program)
    return (kinds, memory_time.draw(moments, resting, found.usable, rank)) if len(moments) > 1 else (kinds,)


def over_time(found: Prediction, setting: Setting, program: ExpandedProgram) -> tuple[list[Moment], float, str]:
    """What the worst rank holds at the fullest of each of its slots, so that the fullest of all is the answer's."""
    stages = found.memory.by_stage
    place = max(range(len(stages)), key=lambda at: stages[at])
    kind = program.kinds[place]
    new = setting.trainer.storage.transient_gradient * sum(program.stages[at].memory.trained for at in kind.stages)
    held: list[tuple[str, float]] = []
    flying: list[tuple[int, int]] = []
    for slot in kind.slots:
        own = (slot.stage, slot.microbatch)
        needs = program.stages[slot.stage].memory
        peak = needs.forward_peak if slot.kind == "F" else needs.backward_peak + new
        others = sum(program.stages[stage].memory.kept for stage, micro in flying if (stage, micro) != own)
        held.append((f"{slot.kind}{slot.microbatch}", max(peak, needs.kept) + others))
        if slot.kind == "F":
            flying.append(own)
        elif slot.kind in ("B", "W") and own in flying:
            flying.remove(own)
    most = max((size for _, size in held), default=0.0)
    moving = min(found.memory_bytes, sum(found.memory.by_kind.get(name, 0.0) for name in WORK) or most)
    resting = found.memory_bytes - moving
    scale = moving / most if most else 0.0  # from tensors to what the device reports
    return [Moment(name, resting + scale * size) for name, size in held], resting, program_place(program, place)


def program_place(program: ExpandedProgram, place: int) -> str:
    """What the fullest rank is called."""
    return "every rank" if len(program.kinds) == 1 else f"ranks of place {place} on the pipeline, the fullest"


def _alive(alive: Sequence[Alive]) -> tuple[tuple[str, ...], ...]:
    return tuple((one.name, f"{one.count:,}", show_bytes(one.bytes)) for one in alive)


def _known(found: Prediction) -> tuple[tuple[str, ...], ...]:
    rows = [*found.provenance.items(), *(("narrower", way) for way in found.narrower)]
    return tuple((name, text) for name, text in rows)


def accuracy_section() -> Section:
    """How far predictions of published runs were; the figures are those that ship."""
    by_source: dict[str, list[float]] = {}
    for one in similar.groups():
        by_source.setdefault(one.source, []).extend(one.errors)
    charts = (errors.draw(by_source),) if by_source else ()
    told = (
        "Published runs against their predictions. Some constants were chosen with some of these runs in view: "
        "`foretell validate --constants` lists them, and `foretell validate` does all of it again."
    )
    return Section("Accuracy", told, charts)


# --- searches, scaling, comparisons -------------------------------------------------------------


def search_section(found: Found) -> Section:
    """The front, the best plans, and what was refused."""
    front = [Dot(one.plan, one.step_seconds, one.memory_bytes) for one in found.pareto]
    others = [Dot(one.plan, one.step_seconds, one.memory_bytes) for one in found.top]
    told = f"{found.evaluated:,} plans were priced in {show_seconds(found.seconds)}, {found.fitting:,} of them fit."
    rows = tuple((one.plan, show_seconds(one.step_seconds), show_bytes(one.memory_bytes)) for one in found.top)
    charts = (pareto.draw(front, others, found.capacity),) if front else ()
    return Section("Plans", told, charts, ("the best plans", "step", "memory"), rows)


def scaling_section(found: Scaling) -> Section:
    """Throughput over ranks, crossings and ends."""
    crossings = [
        (f"{one.first}, then {one.second}", f"between {one.low} and {one.high} GPUs") for one in found.crossings
    ]
    ends = [(name, f"ends before {gap.ranks} GPUs: {gap.why}") for name, gap in found.ends.items()]
    return Section("Scaling", "", (scaling.draw(found),), ("strategy", "where it changes"), tuple(crossings + ends))


def scaling_page(found: Scaling) -> Page:
    """A page about numbers of GPUs."""
    batch = f"batch {found.batch:,}{' a rank' if found.weak else ''}"
    cards = tuple(Card(f"fastest on {ranks}", name) for ranks, name in found.fastest.items())
    return Page(
        title=f"{found.model}, {batch}, over {found.cluster}",
        plan="",
        cards=cards,
        sections=(scaling_section(found), accuracy_section()),
        papers=papers(found.model, parse(found.base_plan)) if found.base_plan else (),
    )
