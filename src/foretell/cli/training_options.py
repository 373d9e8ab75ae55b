"""Options about a whole run: how much to train, and what the run meets beside its steps."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.amounts import read_amount, read_price
from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.oracle.training import DAY, HOUR, Conditions, Training, TrainingRun, run
from foretell.units import MOST_DIGITS, YEAR, show_bytes, show_number, show_percent, show_rate, show_span

if TYPE_CHECKING:
    from foretell.oracle.training import BatchedExamples

SPANS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": HOUR, "d": DAY}
"""Units of a time that a person waits."""

_OPTIONS = (
    click.option("--tokens", callback=read_amount, metavar="N", help="Also print days to train on N tokens: 15T."),
    click.option("--samples", callback=read_amount, metavar="N", help="Also print days to train on N samples."),
    click.option("--lengths", metavar="FILE", help="Tokens of each example, one a line; or MEAN,MAXIMUM: 600,2048."),
    click.option(
        "--padding", metavar="WORD", help="Rows of such examples: longest (of a micro-batch), maximum, packed, cut."
    ),
    click.option("--epochs", type=float, metavar="N", help="Passes over these tokens or samples (1)."),
    click.option(
        "--price", callback=read_price, metavar="P", help="Also print the cost, at this price of a GPU-hour: '$2'."
    ),
    click.option("--input-rate", type=float, metavar="N", help="Samples/s that a node can read and decode."),
    click.option("--storage", metavar="RATE", help="Write bandwidth of checkpoints, in all: '20 GB/s'."),
    click.option("--dataset", metavar="SIZE", help="Data to copy to the nodes first: '2 TB'."),
    click.option("--interval", metavar="TIME", help="Time between checkpoints: 30min (the best)."),
    click.option("--device-mtbf", metavar="TIME", help="Mean time between failures of a device: 50000h."),
    click.option("--node-mtbf", metavar="TIME", help="The same of a node, without its devices."),
    click.option("--restart", metavar="TIME", help="Time from a failure until training resumes: 10min."),
)


NAMES = (
    *("tokens", "samples", "lengths", "padding", "epochs", "price", "input_rate", "storage", "dataset", "interval"),
    *("device_mtbf", "node_mtbf", "restart"),
)
"""The options, as a verb gets them."""


def trained(*alone: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb these options; it gets them as one `TrainingRun`, called `run`.

    `alone` are those that also say something about a single step.
    """

    def with_options(verb: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def called(*given: Any, **options: Any) -> None:
            verb(*given, run=_read({name: options.pop(name) for name in NAMES}, alone), **options)

        for option in reversed(_OPTIONS):
            called = option(called)
        return called

    return with_options


def _read(given: dict[str, Any], alone: tuple[str, ...]) -> TrainingRun:
    amount = {name: positive(given[name], f"--{name}") for name in ("tokens", "samples")}
    if all(amount.values()):
        raise BadInput("a run of tokens and of samples", where="--tokens, --samples", fix="one of the two")
    if given["lengths"] == "":
        raise BadInput("no lengths are given", where="--lengths", fix="--lengths 600,2048, or a file")
    told = run(amount["tokens"], amount["samples"], lengths=given["lengths"] or "", padding=given["padding"] or "")
    amount["samples"] = told.samples
    epochs = positive(given["epochs"], "--epochs")
    about = [name for name, value in given.items() if value is not None and name not in (*amount, *alone)]
    if about and not any(amount.values()):
        what = f"{_option(about[0])} is about a whole run, and its length is not given"
        raise BadInput(what, where=_option(about[0]), fix="--tokens 1e12, or --samples 1e6")
    conditions = Conditions(
        input_rate=positive(given["input_rate"], "--input-rate") or math.inf,
        dataset=_figure(given["dataset"], "memory", "--dataset"),
        storage=_figure(given["storage"], "bandwidth", "--storage"),
        interval=span(given["interval"], "--interval"),
        device_mtbf=span(given["device_mtbf"], "--device-mtbf") or math.inf,
        node_mtbf=span(given["node_mtbf"], "--node-mtbf") or math.inf,
        restart=span(given["restart"], "--restart"),
        price=positive(given["price"], "--price"),
    )
    return TrainingRun(**amount, epochs=epochs or 1.0, examples=told.examples, conditions=conditions)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def positive(value: float | None, where: str) -> float:
    """A number that was typed; 0 where it was not."""
    if value is None:
        return 0.0
    if not (value > 0 and math.isfinite(value)):
        raise BadInput(f"{value:g} is not a positive number", where=where, fix=f"{where} 1, or any number above 0")
    return value


def _figure(text: str | None, kind: str, where: str) -> float:
    return quantity.parse(text, kind, where) if text is not None else 0.0


def span(text: str | None, where: str) -> float:
    if text is None:
        return 0.0
    form = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?) *([a-z]+)", text.strip())
    if form is None or form[2] not in SPANS or not math.isfinite(float(form[1])) or not float(form[1]):
        raise BadInput(f"{text!r} is not a time", where=where, fix=f"30min; units: {', '.join(SPANS)}")
    return float(form[1]) * SPANS[form[2]]


# what is said about a run


def run_lines(run: Training, price: float, forward: bool) -> list[tuple[str, str]]:
    """A run in a few lines, name and text; `forward`: nothing is trained in it."""
    lines = [("training", f"{_days(run.days)}, {_whole(run.steps)} steps")]
    if forward:
        lines = [("whole run", f"{show_span(run.seconds)}, {_whole(run.steps)} steps")]
    lines += example_lines(run.examples, run.step_seconds) if run.examples else []
    if run.goodput < 0.9995:
        lines.append(("goodput", f"{show_percent(run.goodput)} of the wall-clock time goes into steps that count"))
    if run.input_seconds:
        lines.append(("input", f"each step waits {show_span(run.input_seconds)} for the data loader"))
    if run.staging_seconds:
        lines.append(("staging", f"{show_span(run.staging_seconds)} before the first step"))
    if math.isfinite(run.interval):
        size = f"{show_bytes(run.checkpoint_bytes)} in {show_span(run.checkpoint_seconds)}"
        lines.append(("checkpoints", f"{size}, every {show_span(run.interval)} of training"))
    if math.isfinite(run.mtbf):
        lines.append(("failures", f"one every {show_span(run.mtbf)}, {show_number(run.failures)} in all"))
    if price:
        cost = f"{run.cost:,.2f}" if forward else _whole(run.cost)
        lines.append(("cost", f"{cost}, at {price:g} per GPU-hour"))
    return lines


ROWS = {
    "longest": "as long as the longest of a micro-batch",
    "maximum": "all as long as the longest row",
    "packed": "packed with whole examples",
    "cut": "packed, examples cut where a row ends",
}


def example_lines(found: BatchedExamples, step: float) -> list[tuple[str, str]]:
    """How examples became rows, and what of them does work."""
    beyond = f", {show_percent(found.beyond)} of them longer than a row" if found.beyond else ""
    size = f"{found.mean:,.0f} tokens in the mean, {found.longest:,} at most{beyond}"
    lines = [("examples", f"{_whole(found.examples)} of {size}")]
    rows = f"{ROWS[found.padding]}: {found.mean_row:,.0f} tokens in the mean"
    rows += f", {show_number(found.per_row)} examples" if found.per_row != 1 else ""
    lines.append(("rows", rows))
    work = f"{show_percent(found.work)} of their tokens are no padding: {show_rate(found.tokens_per_second)} of these"
    return [*lines, ("", f"{work} tokens/s, {show_span(step)} a step in the mean")]


LONG = 10 * YEAR
"""A training that takes longer is shown in years."""


def _days(days: float) -> str:
    return f"{show_number(days)} days" if days * DAY < LONG else f"{show_number(days * DAY / YEAR)} years"


def _whole(value: float) -> str:
    """All digits, as long as somebody reads them."""
    return f"{value:,.0f}" if value < 1000 * MOST_DIGITS else f"{value:.3g}"
