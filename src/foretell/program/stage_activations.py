"""What a micro-batch holds on a stage, under the plan's recomputation and offload of activations.

What is kept of a layer and what runs again is decided where its actions are written (`program.body`); here are the
rules that go beyond one layer: segments of several layers, and activations that wait on the host.
"""

from __future__ import annotations

from foretell.plan.plan import Plan
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import Recomputation
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.rank_program import RankProgram, kind_of
from foretell.program.stage_runs import StackedRuns, StageRuns
from foretell.units import Quantity, at_least, ceil_div, somewhere


def activation_peaks(
    local: RankProgram, own: StageRuns | StackedRuns, plan: Plan, weights: WeightBuffers, pipelined: bool
) -> StagePeaks:
    """What a micro-batch holds on a stage of these layers, with what their weights add."""
    rule = plan.policy(Recompute).rule
    peaks = local.peaks(own, weights, pipelined)
    if somewhere(own.layers) and somewhere(rule.together(own.layers) > 1):
        peaks = _segmented(local, own, rule, peaks)
    if somewhere(own.layers) and local.sharers > 1:
        peaks = _divided(local, own, peaks)
    if somewhere(own.layers) and plan.policy(Offload).activations:  # two layers at a time: one at work, one on its way
        stays = _of_losses(local, own)
        gone = (peaks.kept - stays) * (1 - 2 / at_least(own.layers, 2))
        peaks = StagePeaks(*(peak - gone for peak in peaks))
    if not own.inputs:
        return peaks
    given = sum(local.layout.held_bytes(*home) for home in own.inputs)  # samples stay, whatever runs again
    return StagePeaks(*(size + given for size in peaks))


def _segmented(local: RankProgram, own: StageRuns | StackedRuns, rule: Recomputation, peaks: StagePeaks) -> StagePeaks:
    """Only the input of each segment is kept; its layers run again together and keep all for their backward."""
    whole = local.plain.peaks(own, WeightBuffers(), pipelined=True).kept
    ends = local.plain.peaks(own.between, WeightBuffers(), pipelined=True).kept
    inputs = at_least(peaks.kept - ends, 0.0) / own.layers
    each = at_least(whole - ends, 0.0) / own.layers
    size = rule.together(own.layers)
    kept = ends + ceil_div(own.layers, size) * inputs
    again = (size - 1) * each - (peaks.kept - kept)
    if rule.with_ends:
        given = bool(StageRuns(local.graph, own.runs[:1]).inputs)  # samples, which are counted apart
        kept = _of_losses(local, own) + (0.0 if given else inputs)
    forward = peaks.forward_peak - (peaks.kept - kept)
    return StagePeaks(kept, forward, peaks.backward_peak + again, peaks.making_peak + again)


def _divided(local: RankProgram, own: StageRuns | StackedRuns, peaks: StagePeaks) -> StagePeaks:
    """Inputs of layers that run again lie in shares: that of the layer at work is whole, beside its share."""
    ends = local.plain.peaks(own.between, WeightBuffers(), pipelined=True).kept
    inputs = at_least(peaks.kept - ends, 0.0)
    gone = inputs * (1 - 1 / local.sharers)
    left = at_least(gone - inputs / own.layers, 0.0)
    return StagePeaks(
        peaks.kept - gone, peaks.forward_peak - left, peaks.backward_peak - left, peaks.making_peak - left
    )


def _of_losses(local: RankProgram, own: StageRuns | StackedRuns) -> Quantity:
    return sum(local.of_losses(kind_of(run)) for run in own.runs)
