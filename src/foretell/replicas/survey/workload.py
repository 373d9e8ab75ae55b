"""The survey's two tasks. What it does not say is derived from its own figures, by the rules below.

**The length of GPT2-medium's sequences.** Figures 5 and 7 give seconds of an iteration and of an epoch, so iterations
an epoch; the tokens of the data set over these and over the 32 sequences of an iteration are the length, and the power
of two nearest to the median of all rows is taken.

**The stage of ZeRO.** Figure 9 gives memory by GPUs. What n ranks share has gone by 1 - 1/n; the stage whose bytes a
parameter come nearest (Rajbhandari et al. 2020, arXiv 1910.02054: 12 of states and master weights in stage 1, 14 with
gradients in stage 2, 16 with weights in stage 3) is taken.

**What full precision is.** PyTorch 1.8 computes convolutions and matrix products in TF32 where a device has it if
nobody says otherwise. The two frameworks without mixed precision tell on one A100: a model whose rows all stay under
the peak of plain fp32 is taken to be in fp32, one with a row above it in TF32.
"""

from __future__ import annotations

import functools
import math
from statistics import median
from typing import Final, NamedTuple

from foretell.hardware import catalog
from foretell.model.source import load
from foretell.model.totals import totals
from foretell.replicas.survey import published
from foretell.replicas.survey.published import PublishedCurve

IMAGES: Final = "vgg16"
TEXT: Final = "gpt2-medium"
TOKENS: Final = 103_227_021
"""Of Wikitext-103 (Table 3)."""

SHARED: Final = {"zero1": 12.0, "zero2": 14.0, "zero3": 16.0}
"""Bytes of each parameter that the ranks share, by stage."""

COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)


class SurveyTask(NamedTuple):
    """A model on a data set (Table 3)."""

    model: str
    data: str
    batch: int  # samples of one GPU
    samples: int  # of an epoch
    sequence: int  # 0: images
    optimizer: str


def task(model: str) -> SurveyTask:
    if model == IMAGES:
        return SurveyTask(IMAGES, "ImageNet, 224 x 224", 64, 1_281_167, 0, "sgd")
    length = sequence()
    return SurveyTask(TEXT, "Wikitext-103", SEQUENCES, TOKENS // length, length, "lamb")


SEQUENCES: Final = 32
"""Of GPT2-medium, the mini-batch of one GPU (Table 3)."""


@functools.cache
def sequence_evidence() -> tuple[float, ...]:
    """The length that each row of figures 5 and 7 implies."""
    epochs = published.epochs()
    return tuple(
        TOKENS / SEQUENCES / (epochs[curve][gpus] / seconds)
        for curve, counts in published.iterations().items()
        for gpus, seconds in counts.items()
        if gpus in epochs.get(curve, {})
    )


@functools.cache
def sequence() -> int:
    """Tokens of a sequence."""
    return 2 ** round(math.log2(median(sequence_evidence())))


@functools.cache
def shared_bytes() -> float:
    """Bytes of each parameter that ZeRO's ranks share, by figure 9."""
    held = published.memory()[PublishedCurve("thetagpu", TEXT, "zero")]
    parameters = totals(load(TEXT, 1, sequence())).parameters
    gone = [(held[1] - held[gpus]) / (1 - 1 / gpus) for gpus in held if gpus > 1]
    return median(gone) / parameters


@functools.cache
def zero_stage() -> str:
    return min(SHARED, key=lambda stage: abs(SHARED[stage] - shared_bytes()))


PLAIN: Final = ("pipedream", "torchgpipe")
"""Frameworks without mixed precision (section 5.1)."""


def plain_rates(machine: str, model: str) -> tuple[float, ...]:
    """Matrix flops a second of an epoch on one GPU without mixed precision, recomputation not counted."""
    work = task(model)
    cost = totals(load(model, 1, work.sequence or None))
    flops = work.samples * (cost.forward + cost.backward).matrix
    epochs = published.epochs()
    return tuple(flops / epochs[PublishedCurve(machine, model, one)][1] for one in PLAIN)


@functools.cache
def full_precision(machine: str, model: str) -> str:
    """`tf32` where the device has it and the rows need it; else `fp32`."""
    device = catalog.cluster(machine).device
    above = max(plain_rates(machine, model)) > device.matrix_rate("fp32")
    return "tf32" if "tf32" in device.peak and above else "fp32"
