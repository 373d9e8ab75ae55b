"""Pages about virtual time: runs by time to the target, figure 14 of the taxonomy, steps over batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretell.learning.members import about
from foretell.report.charts.curves import Curve, Panel, colours_of, draw
from foretell.report.page import Card, Page, Section
from foretell.report.svg import Chart
from foretell.units import show_bytes, show_seconds
from foretell.virtual.batches import Measured
from foretell.virtual.delays import Delay
from foretell.virtual.simulate import Ran, Simulation

RUNS = ("algorithm", "to the target", "samples", "loss", "staleness", "idle", "link", "bytes")


def charts_of(panels: Sequence[Panel]) -> tuple[Chart, ...]:
    """The panels, a name in one colour in all of them."""
    colours = colours_of(panels)
    return tuple(draw(panel, colours) for panel in panels)


# algorithms


def simulation_page(found: Simulation) -> Page:
    """How each algorithm learns, for each number of workers."""
    counts = _counts(found)
    charts = charts_of(simulation_panels(found))
    sections = (
        Section(f"{count:,} workers", "", (chart,), RUNS, tuple(map(_row, found.of(count))))
        for count, chart in zip(counts, charts, strict=True)
    )
    return Page(
        title=f"{found.model} on {found.cluster}: algorithms by time to a loss of {found.target:.4g}",
        plan="",
        cards=tuple(_fastest(found, count) for count in counts),
        sections=tuple(sections),
        notes=(f"Times are those of {found.model}; gradients are real, of {found.learns}.",),
        papers=tuple(_papers(found)),
    )


def simulation_panels(found: Simulation) -> list[Panel]:
    """The loss over virtual time, a panel for each number of workers."""
    return [
        Panel(
            f"loss-{count}",
            f"Loss over virtual time, {count:,} workers",
            "virtual seconds",
            "loss",
            [Curve(run.algorithm, [(point[2], point[3]) for point in run.curve]) for run in found.of(count)],
            goal=found.target,
        )
        for count in _counts(found)
    ]


def _counts(found: Simulation) -> list[int]:
    return sorted({run.workers for run in found.runs})


def _fastest(found: Simulation, count: int) -> Card:
    first = found.of(count)[0]
    return Card(f"fastest of {count:,} workers", first.algorithm, _reached(first))


def _reached(run: Ran) -> str:
    reached = run.virtual_seconds_to_target
    return run.ended if reached is None else show_seconds(reached)


def _row(run: Ran) -> tuple[str, ...]:
    stale = f"{run.staleness['mean']:.3g}" if run.staleness else "-"
    shares = (f"{run.idle:.0%}", f"{run.link_utilisation:.0%}")
    figures = (f"{run.samples:,}", f"{run.loss:.3g}", stale, *shares, show_bytes(run.bytes["total"]))
    return (run.algorithm, _reached(run), *figures)


def _papers(found: Simulation) -> Iterator[str]:
    """Of the algorithms that ran, each once."""
    papers = {row["name"]: row["paper"] for row in about("algorithms")}
    names = (run.algorithm.partition("@")[0].partition(":")[0].partition("+")[0] for run in found.runs)
    yield from dict.fromkeys(papers[name] for name in names if papers.get(name))


# figure 14


def delays_page(found: Sequence[Delay]) -> Page:
    """Delays of an exchange over workers, and what computing hides."""
    return Page(
        title="Delays of an exchange, figure 14 of the taxonomy",
        plan="",
        cards=(),
        sections=tuple(Section(chart.title, "", (chart,)) for chart in charts_of(delays_panels(found))),
        papers=("Langer et al., Distributed training of deep learning models: a taxonomic perspective, 2020",),
    )


def delays_panels(found: Sequence[Delay]) -> list[Panel]:
    """The figure's panels, with computing as a dashed line."""
    panels: list[Panel] = []
    for at, (model, link) in enumerate(dict.fromkeys((one.model, one.link) for one in found)):
        own = [one for one in found if (one.model, one.link) == (model, link)]
        drawn = [Curve(one.pattern, list(enumerate(one.seconds, 1))) for one in own]
        computing = Curve("a batch", [(1, own[0].compute_seconds), (len(own[0].seconds), own[0].compute_seconds)], True)
        panels.append(Panel(f"delays-{at + 1}", f"{model}, {link}", "workers", "seconds", [*drawn, computing]))
    return panels


# batches


def batches_page(found: Measured) -> Page:
    """Steps to the target over batches."""
    critical = "not reached" if found.critical_batch is None else f"{found.critical_batch:,.0f} samples"
    rows = tuple(
        (f"{one.batch:,}", f"{one.steps:,}" if one.steps else "not reached", f"{one.samples:,}" if one.samples else "")
        for one in found.batches
    )
    return Page(
        title=f"{found.learns}: steps to a loss of {found.target:.4g} over batches",
        plan="",
        cards=(Card("critical batch", critical), Card("noise scale", f"{found.noise_scale:,.0f} samples")),
        sections=(
            Section("Steps", "", charts_of(batches_panels(found)), ("batch", "steps", "samples"), rows),
        ),
        papers=("McCandlish et al., An empirical model of large-batch training, arXiv 1812.06162, 2018",),
    )  # fmt: skip


def batches_panels(found: Measured) -> list[Panel]:
    """Steps over batches, counted and by the law."""
    counted = [(float(one.batch), float(one.steps)) for one in found.batches if one.steps]
    law = [(batch, steps) for batch, _ in counted if (steps := found.by_the_law(batch)) is not None]
    fitted = [Curve("by the law", law, True)] if law else []
    return [Panel("steps", "Steps to the target", "batch", "steps", [Curve("counted", counted), *fitted])]
