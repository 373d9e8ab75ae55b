"""What a step means in the units that runs are reported in: tokens/s/GPU, TFLOP/s/GPU, MFU and HFU, the bubble's parts.

MFU is the model's own matrix work over what all ranks could do in the step at the peak of the plan's precision; HFU
counts what runs again besides (Chowdhery et al. 2022, PaLM, appendix B; Korthikanti et al. 2022, section 6.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction

TERA: Final = 1e12

SCHEDULE, IMBALANCE = "schedule", "imbalance"
"""What a bubble is made of."""


class StepRates(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that follow from a prediction; a program reads them beside it."""

    samples_per_second_per_gpu: float
    tokens_per_second_per_gpu: float  # 0 where samples are no sequences
    tflops_per_gpu: float  # by model flops
    mfu: float
    hfu: float  # as mfu, with what runs again
    peak_tflops: float  # of one device, in the precision of the plan's matrix products
    accumulation: int  # micro-batches that a rank takes one after the other in a step
    bubble_parts: dict[str, float]  # seconds: of the schedule, and of stages that are not equal


def step_rates(found: Prediction) -> StepRates:
    """The figures of one prediction."""
    of_all = found.step_seconds * found.ranks
    return StepRates(
        samples_per_second_per_gpu=found.samples_per_second / found.ranks,
        tokens_per_second_per_gpu=found.tokens_per_second / found.ranks,
        tflops_per_gpu=found.model_flops / of_all / TERA,
        mfu=found.utilisation,
        hfu=found.hardware_flops / (of_all * found.peak_flops),
        peak_tflops=found.peak_flops / TERA,
        accumulation=found.microbatches,
        bubble_parts=bubble_parts(found),
    )


def bubble_parts(found: Prediction) -> dict[str, float]:
    """The bubble of the schedule, and the stage imbalance: together they are the bubble of the breakdown."""
    bubble = found.breakdown.get("bubble", 0.0)
    imbalance = bubble * found.imbalance
    return {SCHEDULE: bubble - imbalance, IMBALANCE: imbalance}


def split_breakdown(found: Prediction) -> dict[str, float]:
    """The breakdown as it is shown: the bubble that the schedule has, and beside it the stage imbalance."""
    parts = bubble_parts(found)
    shown = {name: parts[SCHEDULE] if name == "bubble" else seconds for name, seconds in found.breakdown.items()}
    shown |= {IMBALANCE: parts[IMBALANCE]} if parts[IMBALANCE] else {}
    return {name: seconds for name, seconds in shown.items() if seconds}
