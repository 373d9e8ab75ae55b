"""Pages about virtual time: runs by time to the target, figure 14 of the taxonomy, steps over batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretell.learning.members import about
from foretell.report.charts.curves import Curve, Panel, colours_of, draw
from foretell.report.page import Card, Page, Section
from foretell.report.svg import Chart
from foretell.units import show_bytes, show_seconds
from foretell.virtual.batches import BatchTradeOff
from foretell.virtual.delays import Delay
from foretell.virtual.simulate import Simulation, TunedRun

RUNS = ("algorithm", "to the target", "samples", "loss", "staleness", "idle", "link", "bytes")


def charts_of(panels: Sequence[Panel]) -> tuple[Chart, ...]:
    """The panels, a name in one colour in all of them."""
    colours = colours_of(panels)
    return tuple(draw(panel, colours) for panel in panels)


# algorithms


def simulation_page(found: Simulation) -> Page:
    """How each algorithm learns, for each number of workers."""
    counts = _counts(found)
    panels = [panels_of(found, count) for count in counts]
    colours = colours_of([one for own in panels for one in own])
    sections = (
        Section(f"{count:,} workers", "", tuple(draw(one, colours) for one in own), RUNS, _rows(found, count))
        for count, own in zip(counts, panels, strict=True)
    )
    return Page(
        title=f"{found.model} on {found.cluster}: algorithms by time to a loss of {found.target:.4g}",
        plan="",
        cards=tuple(_fastest(found, count) for count in counts),
        sections=tuple(sections),
        notes=(f"Times are those of {found.model}; gradients are real, of {found.learns}.",),
        papers=tuple(_papers(found)),
    )


def panels_of(found: Simulation, count: int) -> list[Panel]:
    """The loss over virtual time and over samples, and how stale gradients were."""
    runs = found.of(count)

    def loss(name: str, over: str, axis: str, at: int) -> Panel:
        drawn = [Curve(run.algorithm, [(float(point[at]), point[3]) for point in run.curve]) for run in runs]
        return Panel(f"{name}-{count}", f"Loss over {over}, {count:,} workers", axis, "loss", drawn, goal=found.target)

    panels = [loss("loss", "virtual time", "virtual seconds", 2), loss("samples", "samples", "samples", 0)]
    stale = [Curve(run.algorithm, _histogram(run.staleness)) for run in runs if run.staleness]
    if stale:
        title = f"Staleness, {count:,} workers"
        panels.append(Panel(f"staleness-{count}", title, "updates", "share of the gradients", stale, linear=True))
    return panels


def _histogram(staleness: dict[str, float]) -> list[tuple[float, float]]:
    """From 0 to the most, ages that nobody had among them."""
    times = [staleness.get(str(age), 0.0) for age in range(int(staleness["most"]) + 1)]
    return [(float(age), count / sum(times)) for age, count in enumerate(times)]


def _counts(found: Simulation) -> list[int]:
    return sorted({run.workers for run in found.runs})


def _fastest(found: Simulation, count: int) -> Card:
    first = found.of(count)[0]
    return Card(f"fastest of {count:,} workers", first.algorithm, _reached(first))


def _reached(run: TunedRun) -> str:
    reached = run.virtual_seconds_to_target
    return run.ended if reached is None else show_seconds(reached)


def _rows(found: Simulation, count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(map(_row, found.of(count)))


def _row(run: TunedRun) -> tuple[str, ...]:
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


def batches_page(found: BatchTradeOff) -> Page:
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


def batches_panels(found: BatchTradeOff) -> list[Panel]:
    """Steps over batches, counted and by the law."""
    counted = [(float(one.batch), float(one.steps)) for one in found.batches if one.steps]
    law = [(batch, steps) for batch, _ in counted if (steps := found.by_the_law(batch)) is not None]
    fitted = [Curve("by the law", law, True)] if law else []
    return [Panel("steps", "Steps to the target", "batch", "steps", [Curve("counted", counted), *fitted])]
