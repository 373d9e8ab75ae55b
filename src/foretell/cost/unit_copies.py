"""Copies of weights in shares on the stream of the kernels: out of what was gathered, gradients into what is summed.

FSDP2 gathers a unit of weights in one message and copies each out of it before use; gradients are copied into one
tensor, as wide as they travel, before they are summed (PyTorch 2.13, _fsdp_collectives.py: split_with_sizes_copy,
chunk_cat). Trainers whose weights are views of one flat tensor copy nothing. A processor's copies are its thread's
(cpu_host_work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.cost.kernels import memory_rate
from foretell.hardware.cluster import Device
from foretell.model.layers import EqualLayers
from foretell.program.stage_weights import StageWeights
from foretell.program.weight_state import WeightStatePlan


def unit_copy_seconds(
    weight_state: WeightStatePlan,
    care: StageWeights,
    runs: Sequence[EqualLayers],
    runs_back: Callable[[EqualLayers], bool],
    device: Device,
) -> float:
    """Seconds of a micro-batch, both passes."""
    if device.is_processor or not weight_state.trainer.storage.copied:
        return 0.0
    exchanges, each, seen = weight_state.exchanges, "zero3" in weight_state.each, set[str]()
    moved = 2 * exchanges.gathered_bytes([*care.root, *care.twice]) + each * exchanges.summed_bytes(care.root)
    for run in runs:
        unit = care.units.get(run.layer, []) if run.layer not in seen else []
        seen.add(run.layer)
        gathers = 1 + (weight_state.reshards and runs_back(run))
        moved += run.times * (2 * gathers * exchanges.gathered_bytes(unit) + each * exchanges.summed_bytes(unit))
    return moved / memory_rate(device)
