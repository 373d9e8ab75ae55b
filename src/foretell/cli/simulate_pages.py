"""What `foretell simulate` prints: runs by time to the target, figure 14, and the batch-size trade-off."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.cli.compare_pages import lines
from foretell.cli.plan_pages import listed
from foretell.cli.table import fit, table
from foretell.units import show_bytes, show_seconds
from foretell.virtual.again import Again
from foretell.virtual.agreement import Agreement
from foretell.virtual.batches import BatchTradeOff
from foretell.virtual.delays import Delay
from foretell.virtual.foretold import StalenessComparison
from foretell.virtual.simulate import OnSeveral, Simulation, TunedRun
from foretell.virtual.verdict import VersusFastest

SHOWN = (1, 2, 4, 8, 15)
"""Workers of figure 14 that have a column."""

NAME = 32
"""Columns for the name of an algorithm with all that belongs to it."""


def simulation_page(found: Simulation) -> str:
    """The pace, and a table for each number of workers."""
    pace = found.pace
    head = lines(
        [
            ("model", f"{found.model}: its times; gradients are those of {found.learns}"),
            ("on", found.cluster),
            ("gradient", f"{show_seconds(pace.compute)}, of {found.batch} samples"),
            ("exchange", _exchange(found)),
            *([("servers", SERVERS[found.servers])] if found.servers else []),
            ("target", f"a loss of {found.target:.4g}"),
            *(("fastest", _fastest(found, run)) for run in _firsts(found)),
        ]
    )
    counts = sorted({run.workers for run in found.runs})
    parts = (part for count in counts for part in (_runs(found.of(count), count), *_why(found, count)))
    return "\n\n".join([head, *parts])


SERVERS = {
    "beside": "on the ranks of the first workers; --servers own: on hosts of their own",
    "own": "each on a host of its own, beside the cluster",
}


def several_page(found: OnSeveral) -> str:
    """A page for each cluster, and who wins where."""
    pages = [simulation_page(one) for one in found.simulations]
    rows = [
        [one.cluster, f"{run.workers:,}", *(_named(run) if _won(one, run) else ("none", ""))]
        for one in found.simulations
        for run in _firsts(one)
    ]
    fastest = table(["cluster", "workers", "fastest", "to target"], rows, (0, 2))
    return "\n\n".join([*pages, f"{_changes(found)}\n\n{fastest}"])


def _changes(found: OnSeveral) -> str:
    if not any(one.fastest for one in found.simulations):
        return "no algorithm got to the target on any"
    return (
        "the fastest algorithm is not the same on all" if found.changes else "the same algorithm is the fastest on all"
    )


def _won(found: Simulation, run: TunedRun) -> bool:
    """Whether it is the fastest with as many workers; nobody is where nobody got to the target."""
    return found.fastest.get(str(run.workers)) == run.algorithm


def _firsts(found: Simulation) -> list[TunedRun]:
    """The first of each number of workers."""
    return [found.of(count)[0] for count in sorted({run.workers for run in found.runs})]


def _fastest(found: Simulation, run: TunedRun) -> str:
    """Who wins with so many workers, and by how much."""
    if not _won(found, run):
        return f"with {run.workers:,} workers nobody gets there"
    name, seconds = _named(run)
    next_one = next((one for one in found.others[str(run.workers)] if one.times is not None), None)
    by = f"; {next_one.algorithm}, the next, takes {next_one.times:.2f} times as long" if next_one else ""
    return f"with {run.workers:,} workers {name}, in {seconds}{by}"


def _named(run: TunedRun) -> tuple[str, str]:
    return run.algorithm, show_seconds(run.virtual_seconds_to_target or 0.0)


def _why(found: Simulation, workers: int) -> list[str]:
    """What the others pay, beside the fastest."""
    others = found.others.get(str(workers), ())
    if not others:
        return []
    rows = [[fit(one.algorithm, NAME), *_factors(one), one.because] for one in others]
    header = [fit(f"beside {found.fastest[str(workers)]}", NAME), "takes", "samples", "of each", "because"]
    return [listed(header, rows, left=1)]


def _factors(one: VersusFastest) -> list[str]:
    if one.times is None or one.samples is None or one.pace is None:
        return ["", "", ""]
    return [f"{one.times:.3g}x", f"{one.samples:.2g}x", f"{one.pace:.3g}x"]


def again_page(found: Again) -> str:
    """A run of real processes beside the same run in virtual time."""
    head = lines(
        [
            ("algorithm", found.algorithm),
            ("run", f"{found.workers} ranks, {found.steps} gradients each"),
            ("losses", f"differ by {found.apart:.2g} at most"),
            *_foretold(found),
        ]
    )
    last = found.steps - 1
    at = sorted({0, last // 4, last // 2, 3 * last // 4, last})
    rows = [[f"{step + 1}", f"{found.measured[step]:.6g}", f"{found.losses[step]:.6g}"] for step in at]
    losses = table(["gradient", "loss of the ranks", "in virtual time"], rows)
    return "\n\n".join([head, losses, *_stale(found)])


def _foretold(found: Again) -> list[tuple[str, str]]:
    """How far the staleness lies from runs of virtual time, beside how far these lie from each other."""
    if found.foretold is None:
        return []
    told = found.foretold
    lie = f"{told.distance:.0%} of the gradients lie elsewhere than in virtual time {BY[told.by]}"
    noise = f"95 of 100 of its own runs lie within {told.noise:.0%}"
    return [("staleness", f"{lie}; {noise}"), ("", _verdict(told))]


BY = {"asked": "at the pace that was asked for", "taken": "at the paces that ranks had"}


def _verdict(told: StalenessComparison) -> str:
    """What the test says."""
    farther = f"{told.chance:.0%} of them lie as far from the others as the real one"
    return f"{farther}: {'no difference is seen' if told.chance >= RARE else 'they are not alike'}"


RARE = 0.05
"""The chance below which runs are said to differ."""


def agreement_page(found: Agreement) -> str:
    """Real runs beside virtual time, one by one and all together."""
    real, floor = found.usual
    head = lines(
        [
            ("algorithm", found.algorithm),
            ("runs", f"{len(found.runs)} of {found.workers} ranks, {found.gradients} gradients each"),
            ("virtual time", BY[found.together.by]),
            ("real runs", f"lie {real:.1%} from virtual time and {floor:.1%} from each other, in the mean"),
            ("all as one", f"lie {found.together.distance:.1%} from it; {_verdict(found.together)}"),
        ]
    )
    means = [*found.measured, sum(found.measured) / len(found.measured)]
    names = [*(str(at) for at in range(1, len(found.runs) + 1)), "all"]
    rows = [
        [
            name,
            f"{mean:.3g}",
            f"{one.staleness['mean']:.3g}",
            f"{one.distance:.1%}",
            f"{one.noise:.1%}",
            f"{one.chance:.0%}",
        ]
        for name, mean, one in zip(names, means, [*found.runs, found.together], strict=True)
    ]
    return f"{head}\n\n{table(['run', 'staleness', 'predicted', 'apart', 'noise', 'chance'], rows)}"


def _stale(found: Again) -> list[str]:
    if not found.measured_staleness:
        return []
    sides = [found.measured_staleness, found.staleness, *([found.foretold.staleness] if found.foretold else [])]
    ages = dict.fromkeys(name for side in sides for name in side)
    ordered = ["mean", "most", *sorted((age for age in ages if age.isdigit()), key=int)]
    rows = [[name, *(f"{side.get(name, 0):.3g}" for side in sides)] for name in ordered]
    return [table(["staleness", "of the ranks", "in their order", "predicted"][: 1 + len(sides)], rows)]


def _exchange(found: Simulation) -> str:
    pace = found.pace
    far = f", {show_seconds(pace.transmit_far)} between nodes" if pace.transmit_far != pace.transmit else ""
    sums = f"{show_seconds(pace.reduce)} to sum two, {show_seconds(pace.update)} to update"
    return f"{show_bytes(pace.bytes)} in {show_seconds(pace.transmit)}{far}; {sums}"


def _runs(runs: Sequence[TunedRun], workers: int) -> str:
    who = f"{workers:,} worker{'s' * (workers > 1)}"
    header = [who, "to target", "samples", "loss", "stale", "idle", "link", "bytes"]
    return table(header, [_row(run) for run in runs])


def _row(run: TunedRun) -> list[str]:
    reached = run.virtual_seconds_to_target
    time = show_seconds(reached) if reached is not None else run.ended
    stale = f"{run.staleness['mean']:.3g}" if run.staleness else "-"
    figures = [f"{run.loss:.3g}", stale, f"{run.idle:.0%}", f"{run.link_utilisation:.0%}"]
    return [run.algorithm, time, f"{run.samples:,}", *figures, show_bytes(run.bytes["total"])]


def delays_page(found: Sequence[Delay]) -> str:
    """Figure 14: seconds of an exchange over workers; those that computing hides have no mark."""
    parts: list[str] = []
    for model, link in dict.fromkeys((one.model, one.link) for one in found):
        own = [one for one in found if (one.model, one.link) == (model, link)]
        header = ["pattern", *(f"n={count}" for count in SHOWN), "hidden to"]
        rows = [[one.pattern, *(_delay(one, count) for count in SHOWN), str(one.hidden_to or "-")] for one in own]
        computing = f"a batch takes {show_seconds(own[0].compute_seconds)}, * takes longer"
        parts.append(f"{model}, {link}: {computing}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def _delay(one: Delay, workers: int) -> str:
    seconds = one.seconds[workers - 1]
    return f"{show_seconds(seconds)}{'*' if seconds > one.compute_seconds else ' '}"


def batches_page(found: BatchTradeOff, model: str) -> str:
    """Steps and samples over batches, the law that was fitted, and what to ask the search."""
    rows = [
        [
            f"{one.batch:,}",
            f"{one.steps:,}" if one.steps else "not reached",
            f"{one.samples:,}" if one.samples else "",
            _count(found.by_the_law(one.batch)),
            f"{one.rate:g}" if one.rate else "",
            f"{one.noise_scale:,.0f}" if one.noise_scale else "",
        ]
        for one in found.batches
    ]
    head = lines(
        [
            ("learns", found.learns),
            ("target", f"a loss of {found.target:.4g}"),
            ("critical batch", _critical(found)),
            ("noise scale", f"{found.noise_scale:,.0f} samples, by the gradients of single samples"),
            *_least(found),
        ],
        16,
    )
    counted = table(["batch", "steps", "samples", "by the law", "rate", "noise scale"], rows)
    if found.critical_batch is None:
        return f"{head}\n\n{counted}"
    ask = f"foretell plan {model} --on CLUSTER --batch auto --noise-scale '{found.critical_batch:.0f} samples'"
    return f"{head}\n\n{counted}\n\nfor the search: {ask}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _critical(found: BatchTradeOff) -> str:
    if found.critical_batch is None:
        return "larger batches needed: steps still fall in full with the largest"
    return f"{found.critical_batch:,.0f} samples: steps and samples are both twice their least"


def _least(found: BatchTradeOff) -> list[tuple[str, str]]:
    if found.least_steps is None:
        return []
    steps, samples = _count(found.least_steps), _count(found.least_samples)
    return [("least", f"{steps} steps with large batches, {samples} samples with small")]
