"""A whole run on examples of several lengths: rows as a trainer makes them, each step as long as its rows.

The step that is predicted has rows as long as they may be: its memory is what a run needs. Where a micro-batch is only
as long as its longest example, steps of several lengths are predicted and the mean is taken over what is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
import numpy

from foretell.errors import BadInput
from foretell.oracle.lengths import ExampleLengths
from foretell.oracle.predict import Prediction
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved
from foretell.oracle.training import STEP_ALONE, BatchedExamples, Training, TrainingRun, whole
from foretell.plan.facts import facts
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline

Ask = Callable[[Request], tuple[Resolved, Prediction]]

SIXTEENTHS: Final = (1, 2, 4, 6, 8, 12)
"""Of a row: lengths whose steps are predicted beside it. Between them time is a straight line, below it is level."""


def with_rows(request: Request) -> Request:
    """The question with rows as long as asked, or as the longest example."""
    examples = request.run.examples
    if examples is None:
        return request
    if request.graph is not None or re.search(r"[:,]seq=", request.model):
        what = f"{request.model} has rows of its own, and examples of other lengths"
        raise BadInput(what, where="--lengths", fix="a model that is named, and --seq for its rows")
    if request.seq:
        return request
    return request.changed(seq=examples.longest)


def predicted_examples(request: Request, ask: Ask) -> tuple[Resolved, Prediction]:
    """The step of the longest rows, with a whole run of steps as they are."""
    examples = request.run.examples
    assert examples is not None
    if request.cluster is not None and request.cluster.mixed:
        raise BadInput("examples of several lengths on devices of two kinds", where="--lengths", fix="one kind")
    rows = with_rows(request).changed(run=TrainingRun(conditions=request.run.conditions))
    asked, found = ask(rows)
    row = facts(asked.setting.graph).sequence
    if not row:
        raise BadInput(f"{request.model} has no sequences", where="--lengths", fix="a language model")
    mean_row, step = float(row), found.step_seconds - found.breakdown.get("input", 0.0)
    if examples.padding == "longest":
        mean_row, step = _of_longest(rows, asked, ask, examples.within(row), step)
    per_row, kept = examples.per_row(row), examples.tokens(row)
    run = _run(asked, found, request.run, step, per_row)
    figures = BatchedExamples(
        padding=examples.padding,
        examples=request.run.samples or request.run.tokens / examples.mean,
        mean=examples.mean,
        longest=examples.longest,
        beyond=examples.beyond(row),
        row=row,
        mean_row=mean_row,
        per_row=per_row,
        work=per_row * kept / mean_row,
        tokens_per_second=found.batch * per_row * kept / run.step_seconds,
    )
    told = msgspec.structs.replace(run, examples=figures)
    return asked, msgspec.structs.replace(found, training=told)


def _run(asked: Resolved, found: Prediction, run: TrainingRun, step: float, per_row: float) -> Training:
    """The whole run; what reads samples reads all the examples of a row."""
    alone = {name: seconds for name, seconds in found.breakdown.items() if name != "input"}
    met = msgspec.structs.replace(run.conditions, input_rate=run.conditions.input_rate / per_row)
    mean = msgspec.structs.replace(found, step_seconds=step, breakdown=alone)
    return whole(mean, asked.setting, asked.place, msgspec.structs.replace(run, conditions=met))


def _of_longest(
    rows: Request, asked: Resolved, ask: Ask, examples: ExampleLengths, longest: float
) -> tuple[float, float]:
    """Tokens of a row and seconds of a step in the mean, where each micro-batch is as long as its longest example."""
    plan, micro = asked.setting.plan, asked.micro_batch
    pipeline = plan.axis(Pipeline)
    if pipeline and pipeline.ranks > 1:
        what = f"micro-batches of unequal lengths in a pipeline ({plan})"
        raise BadInput(what, where="--padding", fix="--padding maximum, --padding packed, or a plan without pp")
    row = facts(asked.setting.graph).sequence
    calm = rows.changed(run=STEP_ALONE)

    def seconds(length: int) -> float:
        return ask(calm.changed(seq=length))[1].step_seconds

    of = _between(row, examples.counts[0][0], longest, seconds)
    mean_row, ranks = examples.mean_of_longest(micro, float), batch_ranks(plan)
    if ranks == 1 or plan.microbatches == 1 or _meets(plan):
        return mean_row, examples.mean_of_longest(micro * ranks, of)
    return mean_row, examples.mean_of_slowest(micro, plan.microbatches, ranks, of)


def _meets(plan: Plan) -> bool:
    """Whether ranks wait for each other in each micro-batch: for weights, shares of gradients, or rows of experts."""
    data = plan.axis(Data)
    return data is not None and (STORAGES[data.storage].gradients or data.experts > 1)


def _between(row: int, shortest: int, longest: float, seconds: Callable[[int], float]) -> Callable[[int], float]:
    """The time of a step by its length: predicted at a few, a straight line between them."""
    lengths = [row * part // 16 for part in SIXTEENTHS if row * part % 16 == 0]
    below = [length for length in lengths if length <= shortest]
    known = {length: seconds(length) for length in lengths if length >= max(below, default=0)} | {row: longest}
    return lambda length: float(numpy.interp(length, list(known), list(known.values())))
