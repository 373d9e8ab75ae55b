"""The batch as a choice: time per step against the number of steps, by the gradient noise scale.

McCandlish, Kaplan, Amodei and the OpenAI Dota team 2018 (An Empirical Model of Large-Batch Training, arXiv 1812.06162):
to reach the same loss with batches of B samples takes

    steps    S = Smin (1 + Bnoise / B)
    samples  E = B S = Emin (1 + B / Bnoise)        with Emin = Bnoise Smin

Small batches see the fewest samples (Emin), large ones take the fewest steps (Smin), and Bnoise, the gradient noise
scale, lies where both are twice their least. It grows while a model is trained; one figure stands for the whole run.
So the time to a quality is S(B) steps of the best plan for B, and its least is the best batch on a cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

import msgspec

from foretell.errors import BadInput
from foretell.learning.gradient_noise import NoiseScale
from foretell.model.graph import Graph
from foretell.model.source import load
from foretell.oracle.planning import PlanningAnswer
from foretell.oracle.training import HOUR
from foretell.plan.facts import facts
from foretell.records.store import examined
from foretell.summary import Summarized
from foretell.units import show_number, show_seconds

SMALLEST: Final = 1 / 64
LARGEST: Final = 16
"""Batches that are tried, in noise scales. Beyond these 1.6 % of samples or 6 % of steps are left to gain."""

MOST: Final = 2**24
"""A larger batch is a slip of the pen."""


class Tradeoff(NamedTuple):
    """The gradient noise scale and the least samples to train on, both in samples; 0 samples: nobody said."""

    noise: float
    least: float = 0.0
    source: str = ""  # of the noise scale; empty: somebody gave it
    model: str = ""  # that it was measured on

    def of_another(self, model: str) -> tuple[str, ...]:
        """What to say where the noise scale is not that of the model which is asked about."""
        if self.model in ("", model):
            return ()
        return (f"the noise scale was measured on {self.model} and is used for {model}; no two models have the same",)

    def steps_factor(self, batch: int) -> float:
        """Steps over the least that there can be, those of a batch without end."""
        return 1 + self.noise / batch

    def samples_factor(self, batch: int) -> float:
        """Samples over the least that there can be, those of the smallest batches."""
        return 1 + batch / self.noise

    def samples(self, batch: int) -> float:
        """To train on with this batch."""
        return self.least * self.samples_factor(batch)

    def steps(self, batch: int) -> float:
        """To the same quality; of a run whose length nobody said, in units of the least number of steps."""
        return self.samples(batch) / batch if self.least else self.steps_factor(batch)


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """One batch on one cluster, with its best plan."""

    batch: int
    cluster: str
    ranks: int
    steps_factor: float
    samples_factor: float
    plan: str = ""  # empty: there is none
    reason: str = ""  # why
    step_seconds: float | None = None
    memory_bytes: float | None = None
    steps: float | None = None  # in units of the least number of steps, where no budget is given
    seconds_to_quality: float | None = None  # the same: of one of these
    cost: float | None = None  # at the price of a device an hour; device-hours without one


class BatchChoice(Summarized, frozen=True, kw_only=True):
    """All batches that were tried, the smallest first, and the one that is best."""

    noise_scale: float  # samples
    noise_source: str = ""  # what it was measured on; empty: it was given
    least_samples: float  # to train on; 0: not given
    by: str
    best: Weighed | None
    batches: tuple[Weighed, ...]

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "noise scale", f"{show_number(self.noise_scale)} samples"
        yield "best batch", "none fits" if self.best is None else f"{self.best.batch:,}"
        for one in self.batches:
            fast = f"{show_seconds(one.step_seconds)} a step" if one.step_seconds is not None else one.reason
            yield f"{one.batch:,} on {one.cluster}", f"{fast}  {one.plan}"

    @property
    def at_the_end(self) -> bool:
        """Whether the best is the smallest or the largest that was tried: a better one may lie beyond."""
        tried = sorted({one.batch for one in self.batches})
        return self.best is not None and len(tried) > 1 and self.best.batch in (tried[0], tried[-1])


# what a person writes


def sequence_of(model: str | Graph, seq: int = 0) -> int:
    """Tokens of a sample; 0 where samples are no sequences."""
    graph = model if isinstance(model, Graph) else load(model, 1, seq or None)
    return facts(graph).sequence


def tradeoff(noise: str | float, tokens: float, samples: float, length: int) -> Tradeoff:
    """The trade-off in samples, from what is given in samples or tokens."""
    if tokens and samples:
        raise BadInput("a budget in tokens and in samples", where="--tokens, --samples", fix="one of the two")
    if tokens and not length:
        raise BadInput("tokens of a model without sequences", where="--tokens", fix="--samples")
    least = tokens / length if tokens else samples
    if is_record(noise):
        return _measured(Path(noise), length)._replace(least=least)
    return Tradeoff(_scale(noise, length), least)


def is_record(given: str | float) -> TypeGuard[str]:
    """Whether a noise scale is the file of a run that measured one."""
    return isinstance(given, str) and (given.endswith(".json") or Path(given).is_file())


class _OfMeasurement(msgspec.Struct, frozen=True):
    noise: NoiseScale | None = None


class _OfRun(msgspec.Struct, frozen=True):
    """What is read of a run's record."""

    measurement: _OfMeasurement = _OfMeasurement()


def _measured(file: Path, length: int) -> Tradeoff:
    """The noise scale of a run, in samples of so many tokens, and what it is of."""
    found, doubts = examined(file)
    try:
        noise = msgspec.convert(found.content, _OfRun).measurement.noise
    except msgspec.ValidationError as problem:
        raise BadInput(f"not the record of a run: {problem}", where=f"--noise-scale, {file}") from None
    if noise is None:
        what = f"{file.name} has no noise scale: it is a {found.kind}, and its gradients were not measured"
        raise BadInput(what, where="--noise-scale", fix="foretell run MODEL --plan dp2 --task text --noise-every 5")
    if not noise.samples or not noise.looks:
        what = f"{file.name} has no noise scale: noise was all that its looks showed"
        raise BadInput(what, where="--noise-scale", fix="a run with a larger --batch, or more looks: --noise-every 2")
    if bool(noise.sequence) != bool(length):
        what = f"the noise scale is of {found.model}, and one of the two models has no sequences"
        raise BadInput(what, where="--noise-scale", fix="a run of this model")
    in_tokens = noise.sequence / length if length else 1.0
    source = "; ".join([f"measured on {found.model} up to {noise.looks[-1].samples:,} samples", *doubts])
    return Tradeoff(noise.samples * in_tokens, source=source, model=found.model)


def _scale(given: str | float, length: int) -> float:
    form = re.fullmatch(r"\s*([0-9.]+(?:e[+]?[0-9]+)?)\s*(samples|tokens)?\s*", str(given).lower())
    try:
        value = float(form[1]) if form else 0.0
    except ValueError:
        value = 0.0
    if form is None or not (0 < value < math.inf):
        raise BadInput(f"{given!r} is no noise scale", where="--noise-scale", fix=_example(length))
    if form[2] is None and length and isinstance(given, str):
        raise BadInput(f"a noise scale of {given}: samples or tokens?", where="--noise-scale", fix=_example(length))
    if form[2] == "tokens" and not length:
        raise BadInput("tokens of a model without sequences", where="--noise-scale", fix="--noise-scale '2000 samples'")
    return value / length if form[2] == "tokens" else value


def _example(length: int) -> str:
    return "--noise-scale '2e6 tokens', or '500 samples'" if length else "--noise-scale '2000 samples'"


def wanted(text: str, noise: float, ranks: Sequence[int]) -> list[int]:
    """The batches that a text asks to try: `auto`, or a range `32..4096`."""
    if text.strip().lower() == "auto":
        return tried(noise, ranks)
    span = re.fullmatch(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*", text)
    if span is None or not int(span[1]):
        raise BadInput(f"{text!r} are no batches", where="--batch", fix="auto, or 32..4096")
    return tried(noise, ranks, int(span[1]), int(span[2]))


def missing() -> BadInput:
    """What to say when the batch is to be chosen and nothing tells what a step is worth."""
    what = "the best batch depends on how noisy gradients are, and no noise scale is given"
    fix = "--noise-scale '2e6 tokens', or the record of `foretell run MODEL --plan dp2 --noise-every 5`, or --batch 64"
    return BadInput(what, where="--batch", fix=fix)


def tried(noise: float, ranks: Sequence[int], low: int = 0, high: int = 0) -> list[int]:
    """Powers of two, and these times the odd part of each number of ranks, from `low` to `high`.

    Without bounds: what can still gain by the noise scale.
    """
    least = low or 2 ** math.floor(math.log2(max(1.0, noise * SMALLEST)))
    most = high or max(least, 2 ** math.ceil(math.log2(max(1.0, noise * LARGEST))))
    if not 1 <= least <= most <= MOST:
        raise BadInput(f"batches from {least:,} to {most:,}", where="--batch", fix="--batch 32..4096")
    odd = {1, *(count // (count & -count) for count in ranks)}
    found = {part * 2**power for part in odd for power in range(MOST.bit_length())}
    return sorted(batch for batch in found if least <= batch <= most) or [least]


# what is answered


def weighed(answers: Sequence[PlanningAnswer], by: Tradeoff, price: float = 0.0, best_by: str = "time") -> BatchChoice:
    """Every answer by the time that it takes to the same quality."""
    found = tuple(sorted((_weighed(one, by, price) for one in answers), key=lambda one: (one.batch, one.ranks)))
    fitting = [one for one in found if one.plan]
    name = {"time": "seconds_to_quality", "money": "cost"}[best_by]
    best = min(fitting, key=lambda one: (getattr(one, name), one.cost, one.batch), default=None)
    return BatchChoice(
        noise_scale=by.noise,
        noise_source=by.source,
        least_samples=by.least,
        by=best_by,
        best=best,
        batches=found,
    )


def _weighed(answer: PlanningAnswer, by: Tradeoff, price: float) -> Weighed:
    found, batch = answer.found, answer.found.batch
    about = Weighed(
        batch=batch,
        cluster=found.cluster,
        ranks=found.ranks,
        steps_factor=by.steps_factor(batch),
        samples_factor=by.samples_factor(batch),
    )
    if found.best is None:
        why = "nothing fits" if found.nearest else "every plan is refused"
        return msgspec.structs.replace(about, reason=why)
    seconds = by.steps(batch) * found.best.step_seconds
    return msgspec.structs.replace(
        about,
        plan=found.best.plan,
        step_seconds=found.best.step_seconds,
        memory_bytes=found.best.memory_bytes,
        steps=by.steps(batch),
        seconds_to_quality=seconds,
        cost=found.ranks * seconds / HOUR * (price or 1.0),
    )
