"""Copies of weights in shares on the stream of the kernels: out of what was gathered, gradients into what is summed.

FSDP2 gathers a unit of weights in one message and copies each out of it before use; gradients are copied into one
tensor, as wide as they travel, before they are summed (PyTorch 2.13, _fsdp_collectives.py: split_with_sizes_copy,
chunk_cat). Trainers whose weights are views of one flat tensor copy nothing. A processor's copies are its thread's
(cpu_host_work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.cost.kernels import memory_rate
from foretell.cost.stood_in import gathered_seconds
from foretell.hardware.cluster import Cluster
from foretell.model.layers import EqualLayers
from foretell.program.stage_weights import StageWeights
from foretell.program.weight_state import WeightStatePlan


def unit_copy_seconds(
    weight_state: WeightStatePlan,
    care: StageWeights,
    runs: Sequence[EqualLayers],
    runs_back: Callable[[EqualLayers], bool],
    cluster: Cluster,
) -> float:
    """Seconds of a micro-batch, both passes."""
    if cluster.device.is_processor:
        return 0.0
    gathered, moved = unit_bytes(weight_state, care, runs, runs_back)
    copied = (2 * gathered + moved) / memory_rate(cluster.device) if weight_state.trainer.storage.copied else 0.0
    return copied + gathered_seconds(gathered, weight_state.bytes.gathered, cluster)


def unit_bytes(
    weight_state: WeightStatePlan,
    care: StageWeights,
    runs: Sequence[EqualLayers],
    runs_back: Callable[[EqualLayers], bool],
) -> tuple[float, float]:
    """Bytes that are gathered in both passes, and those that go from and to what is summed."""
    exchanges, each, seen = weight_state.exchanges, "zero3" in weight_state.each, set[str]()
    gathered, moved = exchanges.gathered_bytes([*care.root, *care.twice]), each * exchanges.summed_bytes(care.root)
    for run in runs:
        unit = care.units.get(run.layer, []) if run.layer not in seen else []
        seen.add(run.layer)
        gathers = 1 + (weight_state.reshards and runs_back(run))
        gathered += run.times * gathers * exchanges.gathered_bytes(unit)
        moved += run.times * each * exchanges.summed_bytes(unit)
    return gathered, moved
