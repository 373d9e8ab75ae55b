"""What `foretell run` and `foretell compare` show."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from foretell.cli.parts import largest_first, parts_table
from foretell.cli.table import WIDTH, fit, folded_lines, table
from foretell.oracle.part_names import part_name
from foretell.units import show_bytes, show_percent, show_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretell.runtime.assignment import Assignment, Collective
    from foretell.runtime.comparison import Comparison, TrafficMismatch
    from foretell.runtime.measure import Measurement, Samples
    from foretell.runtime.outside import Outside


def page(found: Measurement) -> str:
    """A run that was measured."""
    spread = f"{show_seconds(found.samples.p10)} to {show_seconds(found.samples.p90)}"
    facts = [
        ("model", fit(found.model, WIDTH - 14)),
        ("plan", found.plan),
        ("method", found.method),
        ("ranks", f"{found.ranks}, batch {found.batch:,}"),
        ("step", f"{show_seconds(found.step_seconds)}, {spread} (p10 to p90) over {_samples(found.samples)}"),
        ("loss", f"{found.losses[0]:.4g} at first, {found.losses[-1]:.4g} at last" if found.losses else ""),
        ("rehearsed", f"rank {', '.join(map(str, found.rehearsed))} alone" if found.rehearsed else ""),
        *_learnt(found),
        ("pace", _paced(found)),
        *_noise(found),
        ("staleness", _stale(found)),
        ("memory", f"{show_bytes(found.memory_bytes)} of tensors on the worst rank"),
        *_lived(found),
        ("record", found.record),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in facts if text)
    return "\n\n".join([head, _time(found), _collectives(found.collectives)])


def _samples(found: Samples) -> str:
    return f"{found.n} steps" if found.of == 1 else f"{found.n} rounds of {found.of} steps, the mean of each"


def _learnt(found: Measurement) -> list[tuple[str, str]]:
    """What was seen of held-out data, at last and at best."""
    if not found.validation:
        return []
    last = found.validation[-1]
    best = max((one.metric for one in found.validation if one.metric is not None), default=None)
    right = f"{last.metric:.1%} right (best {best:.1%}), " if last.metric is not None and best is not None else ""
    when = f"after {last.samples:,} samples and {show_seconds(last.seconds)}"
    fluent = f", perplexity {last.perplexity:.4g}" if last.perplexity is not None else ""
    return [("held out", f"{right}loss {last.loss:.4g}{fluent} {when}")]


def _noise(found: Measurement) -> list[tuple[str, str]]:
    """How noisy gradients were, and who asks for it."""
    if found.noise is None:
        return []
    looks, error = found.noise.looks, found.noise.error
    seen = f"{len(looks)} look{'s' * (len(looks) != 1)} at {looks[0].whole:,} samples"
    if found.noise.samples is None:
        return [("noise scale", f"not known: {seen} show only noise; try a larger --batch, or more looks")]
    sure = f" +- {show_rate(error)}" if error is not None else ""
    return [("noise scale", f"{show_rate(found.noise.samples)}{sure} samples, of the later ones of {seen}")]


def _lived(found: Measurement) -> list[tuple[str, str]]:
    """What failures and checkpoints cost, where there were some."""
    if found.lives is None:
        return []
    one = found.lives
    lost = f"{one.failures} failure{'s' * (one.failures != 1)}, {show_seconds(one.restart_seconds)} to restart"
    wrote = f"{one.checkpoints} checkpoint{'s' * (one.checkpoints != 1)} of {show_seconds(one.checkpoint_seconds)}"
    wrote = wrote if one.checkpoints else "no checkpoint was written"
    never = f"; no failure before step {', '.join(map(str, one.not_reached))}" if one.not_reached else ""
    told = [("goodput", f"{show_percent(one.goodput)} of {show_seconds(one.seconds)}: {lost}; {wrote}{never}")]
    return [*told, *(("passed over", f"the checkpoint of {why}; the one before was taken") for why in one.passed_over)]


def _stale(found: Measurement) -> str:
    """Updates between a gradient's reading of the weights and its being taken in."""
    if not found.staleness:
        return ""
    return f"{found.staleness['mean']:.3g} updates in the mean, {found.staleness['most']:.0f} at most"


def _paced(found: Measurement) -> str:
    """How long gradients were made to take, and how many did not keep to it."""
    if not found.pace:
        return ""
    late = f"{found.late:,} of {found.ranks * len(found.losses):,} took longer than they were to"
    return f"{show_seconds(found.pace)} a gradient, by waiting; {late}"


def _time(found: Measurement) -> str:
    return parts_table("step time", largest_first(_named(found.breakdown)), found.step_seconds, show_seconds)


def _named(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Parts of a step by the names they are shown with; a measured bubble is in one piece."""
    return {part_name(key): seconds for key, seconds in breakdown.items()}


def _collectives(rows: tuple[Collective, ...]) -> str:
    if not rows:
        return "collectives: none"
    shown = [[one.phase, one.kind, _along(one), f"{one.count}", show_bytes(one.payload)] for one in rows]
    return table(["collectives", "", "along", "count", "payload"], shown, left=(0, 1, 2))


def _along(one: Collective) -> str:
    return f"{' '.join(one.axes)}, {one.ranks}"


def comparison_page(found: Comparison) -> str:
    """A prediction and a measurement side by side."""
    predicted, measured = found.predicted, found.measured
    rows = [
        [
            "step",
            show_seconds(predicted.step_seconds),
            show_seconds(measured.step_seconds),
            show_percent(found.error.relative["step_seconds"], sign=True),
        ],
        [
            "memory of tensors",
            show_bytes(predicted.memory.allocated),
            show_bytes(measured.memory.allocated),
            show_percent(found.error.relative["allocated"], sign=True),
        ],
    ]
    if measured.memory.reserved > measured.memory.allocated:
        rows += [
            [
                "memory reserved",
                show_bytes(predicted.memory.reserved),
                show_bytes(measured.memory.reserved),
                show_percent(found.error.relative["reserved"], sign=True),
            ]
        ]
    head = table(["", "predicted", "measured", "error"], rows)
    ways = _traffic(found.collectives)
    if found.collectives.unexpected or found.collectives.missing:
        ways = _ways(measured) + ways
    return "\n\n".join([head, _phases(found), _limits(found), ways, _outside(found.outside)])


def _ways(measured: Measurement) -> str:
    """That another algorithm ran than the one that the plan means, whose messages are predicted."""
    from foretell.learning.members import composed
    from foretell.plan.text import parse
    from foretell.runtime.methods.choice import method

    meant = method(parse(measured.plan)) if measured.method else None
    if meant is None or meant[1:3] == composed(measured.method)[1:3]:
        return ""
    text = (
        f"{measured.method} ran, and what is predicted is {measured.plan}, which means {meant.text}: "
        f"their messages are not the same."
    )
    return textwrap.fill(text, WIDTH) + "\n\n"


def _phases(found: Comparison) -> str:
    """Phases of a step. Their errors are shares of the whole step, so that they add up to its error."""
    rows: list[list[str]] = []
    for name, error in found.error.breakdown.items():
        before, after = (side.breakdown.get(name, 0.0) for side in (found.predicted, found.measured))
        share = show_percent(error / found.measured.step_seconds, sign=True)
        rows.append([part_name(name), show_seconds(before), show_seconds(after), share])
    return table(["step time", "predicted", "measured", "error, of the step"], rows)


def _limits(found: Comparison) -> str:
    """What limits the step, on either side."""
    lines = ["what limits it:"]
    for side, ones in (("predicted", found.predicted.bottlenecks), ("measured", found.limits)):
        named = ", ".join(f"{one.name} {show_percent(one.share, 0)}" for one in ones) or "nothing"
        lines.append(textwrap.fill(f"{side:<11}{named}", WIDTH, initial_indent="  ", subsequent_indent=" " * 13))
    return "\n".join(lines)


def _outside(found: tuple[Outside, ...]) -> str:
    """Phases and ranks outside their band, and why that may be."""
    if not found:
        return "Nothing is outside its 90 % interval."
    lines = ["outside the 90 % interval:"]
    for one in found:
        lines += textwrap.wrap(
            f"{one.kind}, {one.name}: {show_seconds(one.seconds)}, "
            f"{show_seconds(one.low)} to {show_seconds(one.high)} expected; {one.why}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    return "\n".join(lines)


def dry_page(assignment: Assignment, ranks: int, collectives: Sequence[Collective], found: TrafficMismatch) -> str:
    """A step of one rank beside others that were not there."""
    facts = [
        ("model", fit(assignment.model, WIDTH - 14)),
        ("plan", assignment.plan),
        ("ranks", f"rank 0 of {ranks:,}, batch {assignment.batch:,}: it builds, and it steps"),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in facts)
    return "\n\n".join([head, _collectives(tuple(collectives)), _traffic(found)])


def _traffic(found: TrafficMismatch) -> str:
    if not found.unexpected and not found.missing:
        return "The collectives that ran are those that were predicted, to the byte."
    sides = (("ran, not predicted", found.unexpected), ("predicted, not run", found.missing))
    shown = [
        [side, one.kind, _along(one), f"{one.count}", show_bytes(one.payload)] for side, rows in sides for one in rows
    ]
    return table(["collectives", "", "along", "count", "payload"], shown, left=(0, 1, 2)) + _rows_of_images(found)


def _rows_of_images(found: TrafficMismatch) -> str:
    """Why messages between neighbours of images differ, where they do."""
    ran, said = (
        sum(one.payload * one.count for one in side if one.kind == "send" and one.axes[0].startswith("spatial"))
        for side in (found.unexpected, found.missing)
    )
    if not ran or not said:
        return ""
    why = (
        f"Of rows between neighbours {show_bytes(ran)} were sent otherwise than predicted ({show_bytes(said)}): a run "
        "gives back gradients of the rows it fetched, the program sends those of outputs; and shares of odd sizes "
        "fetch a row more, or less."
    )
    return f"\n{folded_lines(why)}"


def show_seconds(value: float) -> str:
    """A time to three digits with a unit that reads well."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
