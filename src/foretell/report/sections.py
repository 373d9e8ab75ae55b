"""From answers to pages: which charts and tables go under which heading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.oracle import similar
from foretell.oracle.verdict import FAILS, FITS, RETRIES
from foretell.plan.job import batch_ranks
from foretell.plan.text import parse
from foretell.report.bibliography import papers
from foretell.report.charts import breakdown, errors, memory, memory_time, pareto, pipeline, scaling, timeline
from foretell.report.charts.memory_time import MemorySlot
from foretell.report.charts.pareto import Dot
from foretell.report.page import Card, Page, Section
from foretell.report.svg import Chart
from foretell.timeline.memory_timeline import device_bytes
from foretell.units import HOUR, show_bytes, show_count, show_number, show_percent, show_rate, show_seconds

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction
    from foretell.oracle.scale import Scaling
    from foretell.oracle.search import SearchResult
    from foretell.timeline.memory_timeline import MemoryTimeline
    from foretell.timeline.peak_breakdown import AliveTensors
    from foretell.timeline.simulate import Simulated


def prediction_page(
    found: Prediction,
    held: MemoryTimeline,
    simulated: Simulated,
    alive: Sequence[AliveTensors],
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
            memory_section(found, held),
            Section("Alive at the fullest moment", columns=("tensor", "how many", "bytes"), rows=_alive(alive)),
            timeline_section(simulated),
            *more,
            Section("How it is known", "", columns=("part", "evidence"), rows=_known(found)),
            accuracy_section(),
        ),
        notes=tuple(notes),
        papers=papers(found.model, parse(found.plan)),
    )


def timeline_section(simulated: Simulated, finest: int = timeline.FINEST) -> Section:
    """When ranks do what."""
    return Section("Timeline", "", (pipeline.draw(simulated), timeline.draw(simulated, finest)))


def time_section(found: Prediction) -> Section:
    """What a step is spent on, and what limits it."""
    chart = breakdown.draw({"a step": found.breakdown}, {"a step": found.interval})
    return Section("Where the time goes", "", (chart,), ("what limits it", "why", "relief"), _bottlenecks(found))


def memory_section(found: Prediction, held: MemoryTimeline) -> Section:
    """What memory is taken by, and when."""
    return Section("Memory", f"The fullest moment is {found.memory.peak_moment}.", _memory(found, held))


def headline(found: Prediction) -> tuple[Card, ...]:
    """The figures that a person looks for first."""
    low, high = map(show_seconds, found.interval)
    room = f"of {show_bytes(found.usable)} usable"
    over = show_bytes(found.memory_bytes - found.usable)
    short = {FITS: "", RETRIES: f": {over} too much, fits with retries", FAILS: f": {over} too much"}
    verdict = f"{room}{short[found.verdict]}"
    flops = found.model_flops / (found.step_seconds * found.ranks)
    peak = f"{flops / 1e12:.0f} of {flops / found.utilisation / 1e12:.0f} TFLOP/s/GPU" if found.utilisation else ""
    cards = [
        Card("a step", show_seconds(found.step_seconds), f"90 % interval {low} to {high}"),
        _rate(found),
        Card("MFU", show_percent(found.utilisation), peak),
        Card("memory of a GPU", show_bytes(found.memory_bytes), verdict),
        _micro_batch(found),
        *_whole_run(found),
    ]
    if found.accuracy:
        runs = f"median of {found.accuracy.runs:,} similar runs, trainer {found.trainer}"
        cards.append(Card("error so far", show_percent(found.accuracy.median_error), runs))
    return tuple(cards)


def _rate(found: Prediction) -> Card:
    samples = f"{show_rate(found.samples_per_second)} samples/s"
    if not found.tokens_per_second:
        return Card("samples/s/GPU", show_rate(found.samples_per_second / found.ranks), samples)
    each = found.tokens_per_second / found.ranks
    return Card("tokens/s/GPU", f"{each:,.0f}", f"{show_count(found.tokens_per_second)} tokens/s, {samples}")


def _micro_batch(found: Prediction) -> Card:
    size = found.batch // (batch_ranks(parse(found.plan)) * found.microbatches)
    count = found.microbatches
    steps = f"{count:,} accumulation steps" if count > 1 else "no accumulation"
    return Card("micro-batch size", f"{size:,}", f"{steps}, global batch {found.batch:,}")


def _whole_run(found: Prediction) -> tuple[Card, ...]:
    """How long all steps take, where somebody asked, and what they cost at a price."""
    run = found.training
    if run is None:
        return ()
    hours = found.ranks * run.seconds / HOUR
    took = Card("whole run", f"{show_number(run.days)} days", f"{run.steps:,} steps, {show_number(hours)} GPU-hours")
    return (took, Card("cost", show_number(run.cost), f"at {run.cost / hours:.3g} a GPU-hour")) if run.cost else (took,)


def _bottlenecks(found: Prediction) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{one.kind}: {one.name}", one.why, one.relief) for one in found.bottlenecks)


def _memory(found: Prediction, held: MemoryTimeline) -> tuple[Chart, ...]:
    kinds = memory.draw(found.memory.by_kind, found.usable, found.capacity, found.memory.peak_moment)
    moments, resting = over_time(found, held)
    return kinds, memory_time.draw(moments, resting, found.usable, rank_name(held))


def over_time(found: Prediction, held: MemoryTimeline) -> tuple[list[MemorySlot], float]:
    """What the fullest rank holds at the fullest of each of its slots and in the update, and what of it rests.

    As the device reports it; where a measured run corrected the prediction, so is this.
    """
    scale = found.memory_bytes / held.device
    sizes = [(moment.name, device_bytes(held.constants, moment.allocated)) for moment in held.moments]
    resting = device_bytes(held.constants, held.persistent)
    return [MemorySlot(name, size * scale) for name, size in sizes], resting * scale


def rank_name(held: MemoryTimeline) -> str:
    """What the fullest rank is called."""
    return "every rank" if held.ranks == 1 else f"pipeline rank {held.rank}, the fullest"


def _alive(alive: Sequence[AliveTensors]) -> tuple[tuple[str, ...], ...]:
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


def search_section(found: SearchResult) -> Section:
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
    cards = tuple(Card(f"best on {one.ranks}", show_seconds(one.step_seconds), one.plan) for one in found.best.points)
    return Page(
        title=f"{found.model}, {batch}, over {found.cluster}",
        plan="",
        cards=cards,
        sections=(scaling_section(found), accuracy_section()),
        papers=papers(found.model, parse(found.base_plan)) if found.base_plan else (),
    )
