"""Attention by the generation of its kernel.

Unfused, it is batched products over all scores, masked ones too, and passes over the score matrix: `score_bytes` of the
trainer. Fused (flash), no score is stored and masked tiles are skipped: work over a share of the matrix peak, by
architecture, which the trainer says. It stays in 16 bits where layers multiply in fewer.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from foretell.cost.kernels._frame import activation_width, launches_of, plain, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, held_back, memory_rate
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture
from foretell.model.attention import SCORELESS
from foretell.model.operator import Sizes
from foretell.plan.figures import look_up
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, at_least, ceil_div

OPERATORS: Final = ("attention", SCORELESS)

QUERIES: Final = 128
"""Queries of one block of a fused kernel (Dao 2023, arXiv 2307.08691)."""

STORED: Final = 4
"""Fused kernels from which on an attention stores its scores (model/operators/attention.py)."""


RAMP: Final = 3.5
"""Blocks of keys that a block of queries costs besides its own, in that generation: 32 calls on an H200, where PyTorch
2.11 takes cuDNN's kernels (studies/h200_kernels)."""

SPLIT_FLOPS: Final = 200.0
SPLIT_RAMP: Final = 1.0
SPLIT_EXPONENTS: Final = 43
SPLIT_BACKWARD: Final = 0.95
"""The same for fp32, flops a cycle and multiprocessor, and the rate backward over that forward: each product is made of
three in TF32, by kernels of an older generation (28 calls on an H200, the same with and without TF32 allowed)."""

HEAD: Final = 128
EXPONENTS: Final = (58, 36)
"""Features of a head that a score's exponential costs as much as, forward and backward: heads of 64 and 128 on an
H200 (studies/h200_kernels, and the half of studies/h200_experts_and_context that is not set aside)."""

WIDE_HEAD: Final = 256
WIDE_HEADS: Final = (1.07, 1.72)
"""How much longer a feature takes in heads of 256: blocks of fewer queries and keys fit a multiprocessor (six
calls of the same half; 712 Tflop/s forward and 360 backward, where heads of 128 have 670 and 550)."""

KEYS: Final = 512
"""Keys of one block on a processor: causal attention to fewer computes every score (PyTorch 2.13: with 64 and 256 keys
it took as long with a mask as without, with 1,024 three quarters)."""

SHORT: Final = 85
SHALLOW: Final = 25
"""On a processor, keys that a row costs besides its own, and features of a head that a score's exponential costs as
much as: 30 calls on one core, 64 to 1,024 keys, heads of 8 to 128."""

HALF: Final = 2  # bytes of a 16-bit number
FULL: Final = 4  # bytes of an fp32 number

WRITTEN_CYCLES: Final = {"forward": 1.65, "input_gradient": 1.35}
"""Cycles of a multiprocessor for a score that is written out, in all kernels between the products, whatever its bytes
(PyTorch, scaled, masked, softmax and dropout each a kernel; H200)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """What the trainer's kernel costs; a model that needs stored scores (a bias) has them with any trainer."""
    unfused = trainer.attention.kernel == "unfused" or action.cost.fused >= STORED
    stored = unfused and action.operator != SCORELESS
    found = (_unfused if stored else _fused)(action, device, form, trainer)
    return msgspec.structs.replace(found, after=found.after + _layer_seconds(action, device, trainer))


def unit_rate(device: Device, form: Format) -> float:
    """The peak of its units: fp32 that is made of TF32 may be faster than fp32 itself."""
    split = SPLIT_FLOPS * device.multiprocessors * device.clock_hz if _is_split(device, form) else 0.0
    return max(device.matrix_rate(form.kernels), split)


def _is_split(device: Device, form: Format) -> bool:
    return not device.is_processor and activation_width(form) > HALF and "tf32" in device.peak


def _layer_seconds(action: Compute, device: Device, trainer: Trainer) -> Quantity:
    """Of what a trainer's layer does in many kernels, once beside each attention: passes over its hidden tensor."""
    hidden = _heads(action.loops) * action.loops["query"] * action.loops["qk"] * FULL
    passes = trainer.attention.layer_passes * (1 if action.part == "forward" else trainer.fusion.backward)
    return hidden * passes / memory_rate(device)


def _heads(n: Sizes) -> Quantity:
    return n["sample"] * n.get("place", 1) * n["kv_head"] * n["share"]


def _fused(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    n, cost, kernels = action.loops, action.cost, trainer.attention
    backward, built = kernels.flash_backward, architecture(device.architecture)
    if device.is_processor:
        peak = device.matrix_rate(form.other_kernels) * _reach_of_core(action)
        backward = 1.0
    elif _is_split(device, form):
        peak = SPLIT_FLOPS * device.multiprocessors * device.clock_hz * _reach(action, SPLIT_RAMP, SPLIT_EXPONENTS)
        backward = SPLIT_BACKWARD
    else:
        made = "flash2" if kernels.kernel == "flash3" and not built.flash3 else kernels.kernel
        words = (*(f"{made}-{word}" for word in built.words), made, *built.words)
        peak = device.matrix_rate(form.other_kernels) * look_up(kernels.peak, *words) * held_back(device)
        if made == "flash3":
            back = action.part != "forward"
            wide = where(n["qk"] >= WIDE_HEAD, WIDE_HEADS[back], 1.0)
            peak = peak * _reach(action, RAMP, EXPONENTS[back]) / wide
    if action.part != "forward":
        peak = peak * backward
    # Blocks of queries go to multiprocessors side by side. Taken for the first generation too: with a whole head for
    # each multiprocessor (Dao 2023 on that generation) published steps of long sequences came out ten times too slow.
    blocks = _heads(n) * ceil_div(n["query"], QUERIES)
    idle = at_least(device.multiprocessors / blocks, 1.0)
    matrix = cost.matrix * _density(action) / peak * idle
    launches = launches_of(cost, trainer.execution)
    stream = (cost.read + cost.written) / memory_rate(device)
    provenance = "measured" if device.architecture in dict(kernels.peak) else "carried over"
    return KernelPrice(matrix, stream, 0.0, device.launch_seconds * launches, launches, provenance)


def _reach(action: Compute, ramp: float, exponents: float) -> Quantity:
    """Share of the rate of long rows and heads of 128: whole blocks, what a block costs besides, short heads."""
    n = action.loops
    blocks = ceil_div(n["key"], QUERIES)
    used = _density(action) * blocks
    spent = at_least(used + 0.5 * (used < blocks), 1.0) + ramp
    whole = n["query"] * n["key"] / (ceil_div(n["query"], QUERIES) * blocks * QUERIES**2)
    head = n["qk"] / (n["qk"] + exponents) * (HEAD + exponents) / HEAD
    return whole * used / spent * head


def _reach_of_core(action: Compute) -> Quantity:
    """Share of a core's rate for products that attention gets, over the share of the scores that are told to count."""
    n, density = action.loops, _density(action)
    blocks = ceil_div(n["key"], KEYS)
    computed = (blocks + 1) / (2 * blocks) if density < 1 else 1.0
    return density / computed * n["key"] / (n["key"] + SHORT) * n["qk"] / (n["qk"] + SHALLOW)


def _unfused(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    n, cost, kernels = action.loops, action.cost, trainer.attention
    by = units(device, form.other_kernels)
    heads, query, key = _heads(n), n["query"], n["key"]
    qk, value = n["qk"], n["value"]
    scores = product_seconds(query, key, qk, heads, by)
    mixed = product_seconds(query, value, key, heads, by)
    moved = heads * query * key * kernels.score_bytes
    if action.part == "forward":
        matrix = scores + mixed
    else:  # of keys and values like the sum over keys, of queries too; of probabilities like the scores
        matrix = product_seconds(query, key, value, heads, by) + product_seconds(query, qk, key, heads, by)
        matrix = matrix + product_seconds(key, qk, query, heads, by) + product_seconds(key, value, query, heads, by)
        moved = moved * kernels.score_backward
    passes = cost.read + cost.written  # of stored scores too, where the graph has them
    if kernels.kernel == "unfused":
        passes = at_least(moved, passes) if cost.fused >= STORED else moved + passes
    seconds = passes / memory_rate(device)
    if plain(trainer, device):
        cycles = heads * query * key * WRITTEN_CYCLES[action.part]
        seconds = at_least(seconds, cycles * cycle_seconds(device, activation_width(form)))
    launches = launches_of(cost, trainer.execution)
    return KernelPrice(matrix, 0.0 * matrix, seconds, device.launch_seconds * launches, launches, by.provenance)


def _density(action: Compute) -> Any:
    """The share of the scores that a kernel which skips masked tiles computes; 1 where the action does not say."""
    return getattr(action, "density", 1.0)
