"""Beyond the step: what a whole run takes, with its input, its checkpoints and its failures.

A prediction says how long a step takes when nothing disturbs it. A run also waits for samples that are
not read yet, stops to write checkpoints, and after a failure does some of its work again. All of it is
in plain seconds, and nothing is assumed that was not given: without figures a run is its steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from os import PathLike, fspath
from typing import TYPE_CHECKING

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.model.matrices import kept_bytes
from foretell.model.optimizer import optimizer
from foretell.model.quantized import FORMATS
from foretell.oracle.lengths import ExampleLengths, read_lengths
from foretell.plan.facts import facts
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.trained import as_trained_by
from foretell.program.updates import Bytes
from foretell.units import Quantity, at_least, ceil_div

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction

HOUR = 3600.0
DAY = 86400.0


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run meets beside its steps. The defaults disturb nothing and cost nothing."""

    input_rate: float = math.inf  # samples/s that one node reads and decodes
    dataset: float = 0.0  # bytes copied from storage to all nodes together before the first step
    storage: float = 0.0  # B/s between storage and all ranks together; 0: no checkpoints
    interval: float = 0.0  # seconds of training from one checkpoint to the next; 0: the best
    device_mtbf: float = math.inf  # mean seconds between failures of one device
    node_mtbf: float = math.inf  # the same of one node, its devices apart
    restart: float = 0.0  # seconds from a failure until training goes on from the last checkpoint
    price: float = 0.0  # of one device for an hour

    def __post_init__(self) -> None:
        for name in ("input_rate", "device_mtbf", "node_mtbf"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} is {getattr(self, name):g}", where="conditions", fix="more than 0")
        for name in ("dataset", "storage", "interval", "restart", "price"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise BadInput(f"{name} is {value:g}", where="conditions", fix="0 or more")
        for problem, fix in self._incomplete():
            raise BadInput(problem, where="conditions", fix=fix)

    def _incomplete(self) -> Iterator[tuple[str, str]]:
        storage = "the storage's bandwidth too: --storage '20 GB/s'"
        fails = min(self.device_mtbf, self.node_mtbf) < math.inf
        if fails and not self.storage:
            yield (
                "failures, but how long a checkpoint takes is not given",
                "the storage's bandwidth too: --storage '20 GB/s'",
            )
        if self.interval and not self.storage:
            yield "checkpoints, but how long one takes is not given", storage
        if self.dataset and not self.storage:
            yield "data to copy, but how fast is not given", storage


NOTHING = Conditions()


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to train, and under which conditions. 0 tokens and samples: nobody asked about a whole run."""

    tokens: float = 0.0
    samples: float = 0.0
    epochs: float = 1.0  # how often these are gone through
    examples: ExampleLengths | None = None  # which these are of; None: each sample is as long as the step has it
    conditions: Conditions = NOTHING

    def __post_init__(self) -> None:
        for name in ("tokens", "samples"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise BadInput(f"{value:g} {name} to train on", where=f"--{name}", fix=f"--{name} 1e12")
        if not (self.epochs > 0 and math.isfinite(self.epochs)):
            raise BadInput(f"{self.epochs:g} epochs", where="--epochs", fix="more than 0")
        if self.epochs != 1 and not self.asked:
            raise BadInput(f"{self.epochs:g} epochs of nothing", where="--epochs", fix="--samples 1281167 --epochs 90")

    @property
    def asked(self) -> bool:
        return bool(self.tokens or self.samples)

    def steps(self, setting: Setting) -> int:
        """Steps to see all tokens and all samples, every epoch of them."""
        length = facts(setting.graph).sequence
        if self.tokens and not length:
            raise BadInput(f"{setting.graph.name} has no sequences", where="--tokens", fix="--samples")
        each, rows = (self.examples.mean, self.examples.per_row(length)) if self.examples else (length, 1.0)
        by_tokens = self.tokens / (setting.job.batch * rows * each) if self.tokens else 0.0
        steps = math.ceil(self.epochs * max(by_tokens, self.samples / (setting.job.batch * rows)))
        if not steps:
            raise BadInput("nothing to train on", where="--tokens", fix="--tokens 1e12, or --samples 1e6")
        return steps


STEP_ALONE = TrainingRun()
"""No whole run, and nothing that disturbs a step."""


def run(
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    lengths: str | PathLike[str] = "",
    padding: str = "",
) -> TrainingRun:
    """A run from what a person writes; a price may be said beside the conditions or in them.

    A file of lengths with no amount beside it is all examples that there are.
    """
    met = conditions or NOTHING
    if price and met.price and price != met.price:
        raise BadInput(f"a price of {price:g}, and conditions with one of {met.price:g}", where="price", fix="one")
    met = msgspec.structs.replace(met, price=price or met.price)
    if padding and not lengths:
        what = "how rows are padded depends on lengths of examples, and none are given"
        raise BadInput(what, where="--padding", fix="--lengths 600,2048, or a file of one length a line")
    examples = read_lengths(fspath(lengths), padding or "longest") if lengths else None
    if examples and examples.counted and not tokens and not samples:
        samples = float(examples.examples)
    return TrainingRun(tokens=tokens, samples=samples, epochs=epochs, examples=examples, conditions=met)


class BatchedExamples(msgspec.Struct, frozen=True, kw_only=True):
    """How examples of several lengths are put into rows of a batch."""

    padding: str  # one of oracle.lengths.PADDINGS
    examples: float  # of one epoch
    mean: float  # tokens of an example
    longest: int
    beyond: float  # share of examples that are longer than the longest row
    row: int  # tokens of the longest row, which the step and its memory are predicted for
    mean_row: float  # tokens of a row in the mean, padding with them
    per_row: float  # examples
    work: float  # share of all tokens that are no padding
    tokens_per_second: float  # that are no padding


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    steps: int
    step_seconds: float  # with the wait for input
    input_seconds: float  # of each step, that the wait for samples adds
    staging_seconds: float  # before the first step
    productive_seconds: float  # of all steps
    seconds: float  # by the clock on the wall
    goodput: float  # productive share of it
    checkpoint_bytes: float
    checkpoint_seconds: float  # of one
    interval: float  # seconds of training between two; inf: none are written
    mtbf: float  # mean seconds between failures of the job; inf: there are none
    failures: float  # expected
    cost: float  # 0 where no price is given
    examples: BatchedExamples | None = None  # where their lengths are given

    @property
    def days(self) -> float:
        return self.seconds / DAY


def training(
    found: Prediction,
    setting: Setting,
    cluster: Cluster,
    conditions: Conditions = NOTHING,
    *,
    tokens: float = 0.0,
    samples: float = 0.0,
) -> Training:
    """The run that takes this many tokens or samples (the longer of the two), step by predicted step."""
    return whole(found, setting, cluster, TrainingRun(tokens=tokens, samples=samples, conditions=conditions))


def whole(found: Prediction, setting: Setting, cluster: Cluster, asked: TrainingRun) -> Training:
    """A whole run, step by predicted step. What the step waits for input may be in the prediction already."""
    steps, conditions = asked.steps(setting), asked.conditions
    nodes = ceil_div(found.ranks, cluster.ranks_per_node)
    alone = found.step_seconds - found.breakdown.get("input", 0.0)
    waiting = exposed_input(alone, found.batch, nodes, conditions.input_rate)
    step = alone + waiting
    productive = steps * step
    mtbf = job_mtbf(found.ranks, nodes, conditions.device_mtbf, conditions.node_mtbf)
    size = checkpoint_bytes(setting)
    dump = size / conditions.storage if conditions.storage else 0.0
    interval = conditions.interval or (best_interval(dump, mtbf) if dump else math.inf)
    running = wall_seconds(productive, interval, dump, mtbf, conditions.restart)
    staging = conditions.dataset / conditions.storage if conditions.storage else 0.0
    seconds = staging + running
    return Training(
        steps=steps,
        step_seconds=step,
        input_seconds=waiting,
        staging_seconds=staging,
        productive_seconds=productive,
        seconds=seconds,
        goodput=productive / seconds,
        checkpoint_bytes=size,
        checkpoint_seconds=dump,
        interval=interval,
        mtbf=mtbf,
        failures=running / mtbf,
        cost=found.ranks * seconds / HOUR * conditions.price,
    )


def exposed_input(step: Quantity, batch: Quantity, nodes: Quantity, rate: Quantity) -> Quantity:
    """Seconds that a step is longer because samples are not there yet.

    Samples of the next step are read while this one computes, so that only the longer of the two counts:
    the stall of Mohan et al. 2021 (data stalls, arXiv 2007.06775, section 2). Nodes read side by side.
    """
    return at_least(batch / (nodes * rate) - step, 0.0)


def step_input(step: float, setting: Setting, cluster: Cluster, conditions: Conditions) -> float:
    """The step with its wait for samples: the longer of the two, since the next are read while this one computes."""
    nodes = ceil_div(setting.plan.ranks, cluster.ranks_per_node)
    return step + exposed_input(step, setting.job.batch, nodes, conditions.input_rate)


def checkpoint_bytes(setting: Setting) -> float:
    """What a run needs to go on: each weight once, with its master copy and the optimizer's states.

    Where nothing is trained there is nothing to keep.
    """
    if not facts(setting.graph).trains:
        return 0.0
    trained = as_trained_by(setting.plan, setting.graph)
    size = Bytes.of(setting.plan.policy(Precision).format, setting.trainer)
    kept = kept_bytes(trained, optimizer(setting.job.optimizer), size.master, size.state)
    weights = sum(
        block.times * tensor.elements() * (FORMATS[tensor.form].stored if tensor.form else size.weight)
        for block in trained.blocks
        for tensor in block.tensors
        if tensor.role == "parameter"
    )
    return float(weights + kept)


def job_mtbf(devices: Quantity, nodes: Quantity, device_mtbf: Quantity, node_mtbf: Quantity) -> Quantity:
    """Mean seconds between failures of a job that ends with any of its parts: rates of failures add up."""
    rate = devices / device_mtbf + nodes / node_mtbf
    return 1.0 / rate if rate else math.inf


def first_order_interval(dump: float, mtbf: float) -> float:
    """Young 1974, doi 10.1145/361147.361115: sqrt(2 x dump x mtbf)."""
    return math.sqrt(2 * dump * mtbf)


def best_interval(dump: float, mtbf: float) -> float:
    """Seconds of training between two checkpoints that make the run shortest.

    Daly 2006, doi 10.1016/j.future.2004.11.016, the estimate of higher order: Young's interval with two more
    terms of the series, less the writing itself. Where writing takes twice as long as a failure usually takes
    to come, it is that time.
    """
    if math.isinf(mtbf):
        return math.inf
    if dump >= 2 * mtbf:
        return mtbf
    x = dump / (2 * mtbf)
    return first_order_interval(dump, mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - dump


def wall_seconds(productive: float, interval: float, dump: float, mtbf: float, restart: float) -> float:
    """Expected time of a run by the clock on the wall.

    Daly 2006, the complete cost function, for failures that come at random at a steady rate:
    mtbf x e^(restart / mtbf) x (e^((interval + dump) / mtbf) - 1) x productive / interval. Without failures
    only the writing remains. The run stops while it writes.
    """
    if math.isinf(interval):
        return productive
    if math.isinf(mtbf):
        return productive * (1 + dump / interval)
    try:
        segment = mtbf * math.exp(restart / mtbf) * math.expm1((interval + dump) / mtbf)
    except OverflowError:
        what = f"a failure every {mtbf:.3g} s and {interval + dump + restart:.3g} s to get over one: no run ever ends"
        raise BadInput(what, fix="faster storage, a shorter interval, a faster restart, or fewer devices") from None
    return productive * segment / interval
