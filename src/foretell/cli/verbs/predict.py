"""foretell predict: how long a step takes and how much memory a rank needs under a plan."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from foretell.cli.inputs import Asked, Given, planned, read
from foretell.cli.table import WIDTH, fit, table
from foretell.errors import BadInput
from foretell.units import show_bytes, show_count, show_flops

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction

EXAMPLE = "foretell predict llama3-8b --on 64xh100 --plan 'dp8:zero3 tp8:sp +bf16' --batch 64"

DAY = 86400.0

SMALLEST = 1e-6
"""Share of a step below which a part is rounding, not time."""


@click.command("predict", short_help="How long a step takes under a plan, and what a rank needs.")
@planned
@click.option("--tokens", type=float, metavar="N", help="Also: days to train on this many tokens.")
@click.option("--samples", type=float, metavar="N", help="Also: days to train on this many samples.")
@click.option("--price", type=float, metavar="P", help="Also: cost, at this price of a device an hour.")
@click.option("--trace", type=click.Path(dir_okay=False), metavar="FILE", help="Write a timeline for Perfetto.")
@click.option("--oracle", type=click.Choice(["foretell", "paper"]), default="foretell", help="Who is asked.")
@click.option("--release", metavar="NAME", help="Of the paper's tool: 2020, 2021, source, table3 (2020).")
@click.option("--ranks", type=int, metavar="N", help="Of the paper's: every strategy on this many ranks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    given: Given,
    tokens: float | None,
    samples: float | None,
    price: float | None,
    trace: str | None,
    oracle: str,
    release: str | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """How long a step of MODEL takes under a plan, and what memory a rank needs.

    With --oracle paper: the oracle of Kahira et al. 2021 as its authors released
    it. MODEL is one of their layer files (vgg16-paradl) or the path of a .net
    file; the plan is one of dp1, dp16, spatial4, pp4:gpipe +m8, filter4,
    channel4, dp256 filter4, dp256 spatial4.
    """
    if oracle == "paper":
        from foretell.cli.paper_pages import answer_paper

        answer_paper(given.model, given.plan, given.batch, given.cluster, release, ranks, as_json)
        return
    if release is not None or ranks is not None:
        raise BadInput("--release and --ranks belong to --oracle paper", fix=EXAMPLE)
    if given.cluster is None:
        paper = given.model.endswith("-paradl") or given.model.endswith(".net")
        hint = "--on 16xv100-16, or the paper's own: --oracle paper" if paper else EXAMPLE
        raise BadInput("no cluster is given", where="--on", fix=hint)
    asked = read(given)
    _predict(asked, tokens, samples, price, trace, as_json)


def _predict(
    asked: Asked, tokens: float | None, samples: float | None, price: float | None, trace: str | None, as_json: bool
) -> None:
    from foretell.oracle.predict import predict

    assert asked.cluster is not None
    found = msgspec.structs.replace(predict(asked.setting, asked.cluster), model=asked.model)
    seconds = _training(found, tokens, samples)
    if trace:
        from foretell.program.lower import lower
        from foretell.timeline.simulate import simulate
        from foretell.timeline.trace import write_trace

        write_trace(simulate(lower(asked.setting), asked.setting, asked.cluster), trace)
    if as_json:
        answer = {
            **msgspec.to_builtins(found),
            "notes": [*asked.notes, *found.notes],
            "training_seconds": seconds,
            "cost": _cost(found, seconds or found.step_seconds, price),
        }
        click.echo(msgspec.json.encode(answer))
        return
    click.echo(_page(found, seconds, price))
    for note in (*asked.notes, *found.notes):
        print(f"note: {note}", file=sys.stderr)


def _training(found: Prediction, tokens: float | None, samples: float | None) -> float:
    """Seconds to train on so many tokens or samples; 0 if nobody asked."""
    if tokens and not found.tokens_per_second:
        raise BadInput(f"{found.model} has no sequences", where="--tokens", fix="--samples")
    by_tokens = tokens / found.tokens_per_second if tokens else 0.0
    return max(by_tokens, samples / found.samples_per_second if samples else 0.0)


def _cost(found: Prediction, seconds: float, price: float | None) -> float:
    return found.ranks * seconds / 3600 * price if price else 0.0


def _page(found: Prediction, seconds: float, price: float | None) -> str:
    low, high = found.interval
    rate = f"{found.samples_per_second:,.4g} samples/s"
    if found.tokens_per_second:
        rate += f", {show_count(found.tokens_per_second)} tokens/s"
    verdict = "fits" if found.fits else f"{show_bytes(found.memory_bytes - found.capacity)} TOO MUCH"
    lines = [
        ("model", fit(found.model, WIDTH - 18)),
        ("plan", found.plan),
        ("on", f"{found.ranks:,} ranks of {found.cluster}, trainer {found.trainer}"),
        ("step", f"{_seconds(found.step_seconds)} ({_seconds(low)} to {_seconds(high)}), batch {found.batch:,}"),
        ("rate", rate),
        ("utilisation", f"{found.utilisation:.1%} of the peak, {show_flops(found.model_flops)} a step"),
        ("memory", f"{show_bytes(found.memory_bytes)} of {show_bytes(found.capacity)} on the fullest rank: {verdict}"),
        ("", f"at {found.memory.peak_moment}"),
    ]
    if not found.fits:
        lines.append(("", "`foretell fit` finds the smallest change that fits"))
    if seconds:
        lines.append(("training", f"{seconds / DAY:,.3g} days"))
    if price:
        what = "of the training" if seconds else "a thousand steps"
        cost = _cost(found, seconds or 1000 * found.step_seconds, price)
        lines.append(("cost", f"{cost:,.2f} {what}, at {price:g} a device an hour"))
    head = "\n".join(f"{name:<14}{text}" for name, text in lines)
    return "\n\n".join([head, _time(found), _memory(found), *_why(found)])


def _time(found: Prediction) -> str:
    rows = sorted(found.breakdown.items(), key=lambda part: -part[1])
    told = [(name, part) for name, part in rows if part >= SMALLEST * found.step_seconds]
    shown = [[name, _seconds(part), f"{part / found.step_seconds:.1%}"] for name, part in told]
    return table(["a step is spent on", "", "share"], shown)


def _memory(found: Prediction) -> str:
    rows = sorted(found.memory.by_kind.items(), key=lambda part: -part[1])
    shown = [[name, show_bytes(part), f"{part / found.memory_bytes:.1%}"] for name, part in rows if part >= 1]
    return table(["memory is taken by", "", "share"], shown)


def _why(found: Prediction) -> list[str]:
    if not found.bottlenecks:
        return []
    import textwrap

    lines: list[str] = []
    for one in found.bottlenecks:
        lines.append(textwrap.fill(f"{one.kind}: {one.name}. {one.why}", WIDTH, subsequent_indent="  "))
        lines.append(textwrap.fill(f"try {one.relief}", WIDTH, initial_indent="  ", subsequent_indent="  "))
    return ["\n".join(lines)]


def _seconds(value: float) -> str:
    """A time to three digits with a unit that reads well."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}" if value / limit < 1000 else f"{value / limit:,.0f} {unit}"
    return f"{value / 1e-6:.3g} us"
