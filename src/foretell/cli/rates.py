"""The lines of a step as runs are reported: micro-batches, tokens/s/GPU, TFLOP/s/GPU, MFU, memory of what is usable.

`step_lines` is what `predict`, `fit`, `why`, `whatif` and `plan` have in common; the single lines are there for pages
that need one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foretell.hardware.cluster import PROCESSORS
from foretell.oracle.bands import ALWAYS
from foretell.oracle.part_names import part_name
from foretell.oracle.rates import split_breakdown, step_rates
from foretell.oracle.verdict import FITS, RETRIES
from foretell.units import show_bytes, show_count, show_of, show_percent, show_rate, show_seconds

if TYPE_CHECKING:
    from foretell.oracle.energy import StepEnergy
    from foretell.oracle.predict import Prediction

Lines = list[tuple[str, str]]

DIFFERS: Final = 5e-4
"""Share from which on HFU is another number than MFU."""


def gpus(count: int, device: str) -> str:
    """Ranks by what they are: 8 GPUs, and on processors 8 ranks."""
    word = unit(device) if count == 1 else f"{unit(device)}s"
    return f"{count:,} {word}"


def unit(device: str) -> str:
    return "rank" if device in PROCESSORS else "GPU"


def step_lines(found: Prediction) -> Lines:
    """Batch, step, rate, utilisation and memory of a prediction."""
    return [
        ("batch", batch_text(found)),
        ("step", interval_text(found)),
        ("rate", rate_text(found)),
        ("", flops_text(found)),
        ("memory", memory_text(found)),
        ("", likely_text(found)),
        ("", f"peak during {found.memory.peak_moment}"),
    ]


def likely_text(found: Prediction) -> str:
    """likely 50.7 GiB to 76.8 GiB; with why, where it is wider than for any run."""
    wider = ", ".join(reason for reason in found.memory_band if reason != ALWAYS)
    return f"likely {' to '.join(map(show_bytes, found.memory_interval))}" + (
        f" (less is known: {wider})" if wider else ""
    )


def batch_text(found: Prediction) -> str:
    """64 sequences a step: micro-batch size 1, 8 accumulation steps."""
    what = found.sample if found.batch == 1 else f"{found.sample}s"
    step = "a forward pass" if found.forward else "a step"
    return f"{found.batch:,} {what} {step}: {micro_batch_text(found)}"


def micro_batch_text(found: Prediction) -> str:
    """micro-batch size 1, 8 accumulation steps; through a pipeline they are micro-batches."""
    count = step_rates(found).accumulation
    if len(found.memory.by_stage) > 1 or found.forward:
        return f"micro-batch size {found.micro_batch:,}, {count:,} micro-batch{'' if count == 1 else 'es'}"
    steps = "no gradient accumulation" if count == 1 else f"{count:,} accumulation steps"
    return f"micro-batch size {found.micro_batch:,}, {steps}"


def interval_text(found: Prediction) -> str:
    """1.37 s (90 % interval: 1.14 s to 1.65 s)."""
    step, low, high = map(show_seconds, (found.step_seconds, *found.interval))
    return f"{step} (90 % interval: {low} to {high})"


def rate_text(found: Prediction) -> str:
    """382 k tokens/s, 5,963 tokens/s/GPU; of images and other samples their own rate."""
    rates, each = step_rates(found), unit(found.device)
    if found.sample == "sequence":
        whole, of_one, what = found.tokens_per_second, rates.tokens_per_second_per_gpu, "tokens"
        return f"{show_count(whole)} {what}/s, {show_rate(of_one)} {what}/s/{each}"
    whole, of_one, what = found.samples_per_second, rates.samples_per_second_per_gpu, f"{found.sample}s"
    return f"{show_rate(whole)} {what}/s, {show_rate(of_one)} {what}/s/{each}"


def step_unit(found: Prediction) -> str:
    """What the speed of a step is counted in: tokens/s, images/s, samples/s."""
    return "tokens/s" if found.sample == "sequence" else f"{found.sample}s/s"


def flops_text(found: Prediction) -> str:
    """358 TFLOP/s/GPU, MFU 36.2 % of 989 TFLOP/s (bf16); HFU where recompute makes it another number."""
    rates = step_rates(found)
    hardware = f", HFU {show_percent(rates.hfu)}" if rates.hfu - rates.mfu > DIFFERS else ""
    achieved = show_count(found.model_flops / found.step_seconds / found.ranks)
    peak = f"{show_count(found.peak_flops)}FLOP/s ({found.precision})"
    return f"{achieved}FLOP/s/{unit(found.device)}, MFU {show_percent(rates.mfu)}{hardware} of {peak}"


def memory_text(found: Prediction) -> str:
    """15.9 of 76.8 GiB usable: fits."""
    room = f"{show_of(found.memory_bytes, found.usable)} usable"
    over = show_bytes(found.memory_bytes - found.usable)
    if found.verdict == FITS:
        return f"{room}: fits" + (f", {show_percent(found.chance, 0)} likely" if found.chance < SURE else "")
    if found.verdict == RETRIES:
        return f"{room}: FITS WITH RETRIES, {over} over until the allocator gives it back: slower"
    return f"{room}: DOES NOT FIT, {over} over{' and paged to the host' if 'paging' in found.breakdown else ''}"


SURE: Final = 0.9
"""A plan that is said to fit and is less likely to is told with the chance that it does."""


def show_joules(joules: float) -> str:
    """2.41 kJ."""
    shown = show_count(joules)
    return f"{shown}J" if " " in shown else f"{shown} J"


def sample_energy(joules: float, batch: int) -> Lines:
    """The energy of a step and of a sample, where plans were chosen by it."""
    each = show_joules(joules / batch)
    return [("energy", f"{show_joules(joules)} a step, {each} a sample, the GPUs alone")] if joules else []


def carbon_grams(energy: StepEnergy, intensity: float) -> float:
    """What a step emits, at so many grams of CO2 a kWh."""
    return energy.joules / JOULES * intensity


def carbon_lines(energy: StepEnergy, intensity: float, training_seconds: float) -> Lines:
    """What the energy of the GPUs emits, by so many grams of CO2 a kWh."""
    step = carbon_grams(energy, intensity)
    said = f"{step:.3g} g of CO2 a step"
    if training_seconds:
        whole = step * training_seconds / energy.step_seconds
        said += f", {whole / 1e6:.3g} t in the whole training" if whole >= 1e6 else f", {whole / 1e3:.3g} kg in all"
    return [("carbon", f"{said}, at {intensity:g} g a kWh, the GPUs alone")]


JOULES: Final = 3.6e6
"""Of a kilowatt-hour."""


def energy_lines(energy: StepEnergy, found: Prediction) -> Lines:
    """2.41 kJ a step, 612 of 700 W a GPU: 13.6 tokens/J."""
    each = energy.tokens_per_joule if found.sample == "sequence" else energy.samples_per_joule
    what = "tokens" if found.sample == "sequence" else f"{found.sample}s"
    whose = "" if energy.origin == "measured" else "; by the shares that an H200 was measured at"
    return [
        ("energy", f"{show_joules(energy.joules)} a step: {each:.3g} {what}/J, the GPUs alone"),
        ("", f"{energy.watts:,.0f} of {energy.limit:,.0f} W a {unit(found.device)} in the mean{whose}"),
    ]


def shown_breakdown(found: Prediction) -> dict[str, float]:
    """The parts of a step by the names they are shown with; the bubble apart from the stage imbalance."""
    return {part_name(key): seconds for key, seconds in split_breakdown(found).items()}


def shown_memory(found: Prediction) -> dict[str, float]:
    """The bytes of the fullest rank by the names they are shown with."""
    return {part_name(kind): size for kind, size in found.memory.by_kind.items()}
