"""The report of a comparison: the survey's figures from rows, why each engine is slow, and which advice holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from foretell.bench.findings import HOLDS, Checked, check
from foretell.bench.group import REFERENCE, BenchGroup, EngineScaling, MeanLook, alike, groups, shared
from foretell.bench.reading import ReadingLine, line_of, noise
from foretell.bench.reasons import reasons, sentence
from foretell.bench.row import BenchRow, advice
from foretell.report.charts import breakdown, foreseen
from foretell.report.charts.curves import Curve, Panel, colours_of, draw
from foretell.report.page import Card, Page, Section
from foretell.report.svg import COLOURS, Chart, byte_unit
from foretell.units import show_bytes, show_seconds

PAPER = "Nichols et al. 2021 (survey and empirical evaluation of parallel deep learning frameworks), arXiv 2111.04949"


def bench_page(rows: Sequence[BenchRow], title: str, command: str = "", beside: Sequence[BenchRow] = ()) -> Page:
    """Everything about rows. `beside` are other rows for the same questions, drawn dashed: a prediction."""
    found, others = groups(rows), {one.key: one for one in groups(beside or predicted(rows))}
    checked = check(rows)
    sections = [section for group in found for section in _sections(group, others.get(group.key), len(found))]
    return Page(
        title=title,
        plan="",
        cards=tuple(_cards(found, checked)),
        sections=(*sections, *findings_sections(checked), *_absent(rows)),
        papers=(PAPER,),
        command=command,
    )


def predicted(rows: Iterable[BenchRow]) -> tuple[BenchRow, ...]:
    """What the oracle says of rows that carry a prediction, as rows of their own."""
    return tuple(
        msgspec.structs.replace(
            row,
            step_seconds=row.predicted.step_seconds,
            phases=row.predicted.breakdown,
            phases_by_rank={},
            memory_by_rank=(round(row.predicted.memory_bytes),),
            curve=(),
        )
        for row in rows
        if row.ok and row.predicted is not None
    )


def _cards(found: Sequence[BenchGroup], checked: Sequence[Checked]) -> Iterator[Card]:
    for group in found:
        every = ((line.engine, row) for line in group.lines for row in line.rows.values())
        engine, best = min(every, key=lambda one: one[1].epoch_seconds)
        beside = f"{engine} on {best.ranks} {'rank' if best.ranks == 1 else 'ranks'}"
        yield Card(f"fastest epoch, {group.name}", show_seconds(best.epoch_seconds), beside)
    asked = len(checked)
    held = sum(one.verdict.status == HOLDS for one in checked)
    if asked:
        yield Card("findings of the survey", f"{held} of {asked}", "hold here")


# --- one model on one device --------------------------------------------------------------------


COLUMNS = (
    "In the table: the median over seeds. Communication is the share of a step in which a rank stands still for "
    "others; predicted is the error of the prediction."
)

LEARNT = (
    "Right are answers on held-out data at the last look, of the worst and the best seed; to the target are seconds of "
    "training, if all seeds got there."
)


def _sections(group: BenchGroup, beside: BenchGroup | None, several: int) -> Iterator[Section]:
    place = f": {group.name}" if several > 1 else ""
    dashed = "Dashed lines are predictions." if beside else ""
    drawn = {chart.name: chart for panels in _panels(group, beside) for chart in _lines(panels)}
    lines = [line_of(group, line, ranks) for line in group.lines for ranks in line.rows]
    epochs = _foreseen(group, beside, "epoch_seconds", show_seconds)
    differ = noise(row for line in group.lines for own in line.seeds.values() for row in own)
    told = f"{BANDS} {COLUMNS} {differ.told if differ else ''}".strip()
    yield Section(f"Seconds of an epoch{place}", told, epochs, SPEED, tuple(map(_speed, lines)))
    if over := _chosen(drawn, group, "epoch"):
        told = f"Both axes by factors: a line of perfect scaling is straight. {dashed}"
        yield Section(f"Seconds of an epoch over ranks{place}", told.strip(), over)
    bars = tuple(_bars(one, word) for one, word in ((group, "phases"), (beside, "predicted-phases")) if one)
    told = "Parts of the breakdown of its steps, on the most ranks that it has."
    rows = tuple(_slow(group, line, beside) for line in group.lines)
    yield Section(
        f"Why each engine is slow{place}", told, tuple(filter(None, bars)), ("engine", "ranks", "reasons"), rows
    )
    if memory := (*_foreseen(group, beside, "memory_bytes", show_bytes), *_chosen(drawn, group, "memory")):
        told = f"Of the fullest rank, the median over seeds, and the error of its prediction. {dashed}"
        yield Section(f"Memory of a rank{place}", told.strip(), memory, MEMORY, tuple(map(_memory, lines)))
    if metric := _chosen(drawn, group, "metric"):
        told = f"{_learning(group)} {LEARNT}"
        yield Section(f"How well it learns{place}", told, metric, LEARNING, tuple(map(_learning_row, lines)))


def _learning(group: BenchGroup) -> str:
    """What the figures of learning are of, and which engines they leave out."""
    drawn = {line.engine for line in alike(group.lines)[0]}
    apart = [line.engine for line in group.lines if line.engine not in drawn]
    told = "Each engine on the most ranks that it has, the mean of the seeds that all lines of a figure have."
    return f"{told} Not drawn, of one seed only: {', '.join(apart)}." if apart else told


BANDS = "Each engine on the most ranks that it has. The line through a dot is where nine in ten such runs lie."


def _foreseen(
    group: BenchGroup, beside: BenchGroup | None, value: str, show: Callable[[float], str]
) -> tuple[Chart, ...]:
    """Every engine as a bar, beside what was predicted of it."""
    kind, what = ("seconds", "seconds of an epoch") if value == "epoch_seconds" else ("bytes", "memory of a rank")
    said = {(line.engine, ranks): row for line in (beside.lines if beside else ()) for ranks, row in line.rows.items()}
    most = [(line.engine, line.rows[max(line.rows)]) for line in group.lines]
    bars = [_bar(name, row, said.get((name, row.ranks)), value) for name, row in most if getattr(row, value)]
    unit = byte_unit(max((one.measured for one in bars), default=0.0)) if kind == "bytes" else 1.0
    title = f"{what.capitalize()}, {group.told}"
    return (foreseen.draw(bars, what, show, _file(kind, group), title, unit),) if bars else ()


def _bar(engine: str, row: BenchRow, said: BenchRow | None, value: str) -> foreseen.Bar:
    """A row as a bar. Bands are those of its own prediction: one that stands beside it has none."""
    bar = foreseen.Bar(f"{engine} {row.ranks}", getattr(row, value), getattr(said, value) if said else 0.0)
    if row.predicted is None or value != "epoch_seconds":
        return bar
    low, high = row.predicted.low_seconds, row.predicted.high_seconds
    return bar._replace(low=row.steps_per_epoch * low, high=row.steps_per_epoch * high)


def parts(group: BenchGroup) -> list[BenchGroup]:
    """The engines in as many parts as there must be so that each line has a colour: those of a family together."""
    if len(group.lines) <= COLOURS:
        return [group]
    families = dict.fromkeys(line.family for line in group.lines)
    return [
        group._replace(lines=lines, part=f"{kind}{f' {at + 1}' if at else ''}")
        for kind in families
        for at, lines in enumerate(batched(group.of(kind), COLOURS))
    ]


def batched(lines: Sequence[EngineScaling], size: int) -> list[tuple[EngineScaling, ...]]:
    return [tuple(lines[at : at + size]) for at in range(0, len(lines), size)]


def _panels(group: BenchGroup, beside: BenchGroup | None) -> Iterator[list[Panel]]:
    """What may be drawn as lines; an engine has one colour in all panels of a list."""
    for part in parts(group):
        own = {line.engine for line in part.lines}
        likewise = beside._replace(lines=tuple(one for one in beside.lines if one.engine in own)) if beside else None
        yield over_ranks(part, likewise)
    yield from map(over_time, _learners(group))


def _learners(group: BenchGroup) -> list[BenchGroup]:
    """Engines whose learning may be compared, in as many parts as there must be, the reference in each."""
    chosen = group._replace(lines=tuple(alike(group.lines)[0]))
    reference = tuple(line for line in chosen.lines if line.engine == REFERENCE)
    found: list[BenchGroup] = []
    for part in parts(chosen):
        others = tuple(line for line in part.lines if line.engine != REFERENCE)
        found.append(part._replace(lines=reference + others))
    return found


def _lines(panels: Sequence[Panel]) -> Iterator[Chart]:
    colours = colours_of(panels)
    return (draw(panel, colours) for panel in panels if _is_line(panel))


def _is_line(panel: Panel) -> bool:
    """Whether there is more to see than a dot: over one number of ranks bars say it better."""
    return any(len(curve.drawn) > 1 for curve in panel.curves)


def _chosen(drawn: dict[str, Chart], group: BenchGroup, kind: str) -> tuple[Chart, ...]:
    return tuple(chart for name, chart in drawn.items() if name.startswith(_file(kind, group)))


def _file(kind: str, group: BenchGroup) -> str:
    words = (kind, group.device, group.pair, group.conditions, group.part)
    return re.sub("[/:, ]", "-", "-".join(filter(None, words)))


def over_ranks(group: BenchGroup, beside: BenchGroup | None) -> list[Panel]:
    """Seconds of an epoch and memory, by numbers of ranks."""
    counts = sorted({ranks for line in group.lines for ranks in line.rows})
    most = max((row.memory_bytes for line in group.lines for row in line.rows.values()), default=0)
    lines = [(line, False) for line in group.lines] + [(line, True) for line in (beside.lines if beside else ())]

    def curves(value: str) -> list[Curve]:
        return [
            Curve(line.engine, [(at, getattr(row, value)) for at, row in line.rows.items() if at in counts], dashed)
            for line, dashed in lines
        ]

    epochs, held = f"Epoch time, {group.told}", f"Memory of a rank, {group.told}"
    return [
        Panel(
            _file("epoch", group),
            epochs,
            "ranks",
            "seconds of an epoch",
            curves("epoch_seconds"),
            counts,
            show=_seconds,
        ),
        Panel(
            name=_file("memory", group),
            title=held,
            across="ranks",
            up="memory of a rank",
            curves=curves("memory_bytes"),
            at=counts,
            linear=True,
            show=_bytes,
            unit=byte_unit(most),
        ),
    ]


def _seconds(epoch: float) -> str:
    return f"{epoch:,.0f}" if epoch >= 100 else f"{epoch:.3g}"


def _bytes(size: float) -> str:
    return show_bytes(size) if size else "0"


def over_time(group: BenchGroup) -> list[Panel]:
    """The metric (or the loss, where there is none) of held-out data over epochs and over minutes: of each engine on
    the most ranks that it has, the mean of the seeds that all have."""
    lines, seeds = alike(group.lines)
    shown = [(line, looks) for line in lines if (looks := line.learnt(max(line.rows), seeds))]
    scored = any(look.metric is not None for _, looks in shown for look in looks)
    up = "share of right answers" if scored else "loss of held-out data"

    def value(look: MeanLook) -> float:
        return (look.metric or 0.0) if scored else look.loss

    def panel(across: str, when: Callable[[MeanLook], float]) -> Panel:
        curves = [Curve(line.engine, [(when(look), value(look)) for look in looks]) for line, looks in shown]
        title = f"{up.capitalize()} over {across}, {group.told}"
        return Panel(f"{_file('metric', group)}-{across}", title, across, up, curves, linear=scored)

    return [panel("epochs", lambda look: look.epoch), panel("minutes", lambda look: look.seconds / 60)]


SPEED = ("engine", "ranks", "seeds", "epoch", "samples/s", "speed-up", "efficiency", "communication", "predicted")
MEMORY = ("engine", "ranks", "memory", "predicted")
LEARNING = ("engine", "ranks", "seeds", "right", "loss", "to the target")


def _speed(line: ReadingLine) -> tuple[str, ...]:
    return (
        line.engine,
        str(line.ranks),
        str(line.seeds),
        show_seconds(line.epoch_seconds),
        f"{line.samples_per_second:,.4g}",
        f"{line.speed_up:.2f}" if line.speed_up is not None else "-",
        f"{line.efficiency:.0%}" if line.efficiency is not None else "-",
        f"{line.communication_share:.0%}",
        f"{line.error:+.0%}" if line.error is not None else "-",
    )


def _memory(line: ReadingLine) -> tuple[str, ...]:
    held = show_bytes(line.memory_bytes) if line.memory_bytes else "-"
    return line.engine, str(line.ranks), held, f"{line.memory_error:+.0%}" if line.memory_error is not None else "-"


def _learning_row(line: ReadingLine) -> tuple[str, ...]:
    return (
        line.engine,
        str(line.ranks),
        str(line.seeds),
        " to ".join(dict.fromkeys(f"{share:.0%}" for share in line.metric)) if line.metric else "-",
        f"{line.loss:.3g}" if line.loss is not None else "-",
        show_seconds(line.target_seconds) if line.target_seconds is not None else "-",
    )


def _bars(group: BenchGroup, word: str) -> Chart | None:
    """What an epoch is spent on: of each engine on the most ranks that all of them have, or that it has."""
    told = [line for line in group.lines if any(row.phases for row in line.rows.values())]
    common = max((ranks for ranks in shared(told) if all(line.rows[ranks].phases for line in told)), default=0)
    bars: dict[str, dict[str, float]] = {}
    for line in told:
        ranks = common or max(ranks for ranks, row in line.rows.items() if row.phases)
        row = line.rows[ranks]
        bars[f"{line.engine} {ranks}"] = _of_an_epoch(row)
    bars = _without_specks(bars)
    what = "What an epoch is predicted to be spent on" if word.startswith("predicted") else "What an epoch is spent on"
    return breakdown.draw(bars, None, _file(word, group), f"{what}, {group.name}") if bars else None


def _of_an_epoch(row: BenchRow) -> dict[str, float]:
    """Seconds by phase; what ranks wait for each other is one, whatever axis they wait along."""
    found: dict[str, float] = {}
    for name, part in row.phases.items():
        phase = "exposed" if name.startswith("exposed.") else name
        found[phase] = found.get(phase, 0.0) + part * row.steps_per_epoch
    return found


SPECK = 0.01
"""Share of an epoch below which a phase has no colour of its own, if it is so in every bar."""


def _without_specks(bars: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The bars with what is small everywhere as `other`."""
    shown = {name for bar in bars.values() for name, part in bar.items() if part >= SPECK * sum(bar.values())}
    return {
        name: {
            **{phase: part for phase, part in bar.items() if phase in shown},
            "other": sum(part for phase, part in bar.items() if phase not in shown or phase == "other"),
        }
        for name, bar in bars.items()
    }


def _slow(group: BenchGroup, line: EngineScaling, beside: BenchGroup | None) -> tuple[str, str, str]:
    """The reasons of a row, or where it has no phases of the prediction beside it."""
    row = line.rows[max(line.rows)]
    others = (one.rows.get(row.ranks) for one in (beside.lines if beside else ()) if one.engine == line.engine)
    told = next((other for other in others if other and not row.phases), row)
    found = reasons(told, group.reference(row.ranks), group.reference(1))
    return line.engine, str(row.ranks), sentence(found) if told.phases else "no breakdown"


# --- findings, and what is missing --------------------------------------------------------------


def findings_sections(
    checked: Sequence[Checked], heading: str = "What the survey found, asked of these rows"
) -> Iterator[Section]:
    if checked:
        rows = tuple((one.finding.text, one.group.name, one.verdict.status, one.verdict.evidence) for one in checked)
        held = sum(one.verdict.status == HOLDS for one in checked)
        told = f"{held} of {len(checked)} hold. The last three are its advice."
        yield Section(heading, told, columns=("finding", "where", "verdict", "evidence"), rows=rows)


def _absent(rows: Iterable[BenchRow]) -> Iterator[Section]:
    """Rows that came to nothing, each with its reason."""
    found = tuple(
        (row.engine, row.pair, str(row.ranks), row.status, row.reason, advice(row.fix)) for row in rows if not row.ok
    )
    if found:
        columns = ("engine", "model", "ranks", "status", "why", "what would help")
        yield Section("What did not run", "", columns=columns, rows=found)
