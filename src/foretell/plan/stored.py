"""What a trainer stores for each parameter, and how it brings shares together."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretell.plan.figures import Count, PerParameter, Seconds


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of each local parameter in 16-bit training (others: the precision's table), and how shares are gathered."""

    weight: PerParameter  # as it rests
    gathered: PerParameter  # as zero3 gathers it
    gradient: PerParameter  # as accumulated
    transient_gradient: PerParameter  # besides, at the end of a backward pass
    master: PerParameter
    state: PerParameter  # each value that the optimizer keeps
    buckets: PerParameter  # copies of gradients, kept, with more than one data rank that has all of them
    zero1_gradients: bool  # whether zero1 keeps only its share of the gradients
    whole_states: bool  # whether zero1 gives each weight whole to a rank, beside buckets as if nothing were shared
    unit: Literal["block", "model"]  # what zero3 gathers at a time
    flat: bool  # whether a unit is one list of numbers: what is frozen in it has gradients like what is trained
    reshard_forward: bool  # whether zero3 lets a block's weights go after its forward pass
    reshard_pipeline: bool  # the same with more than one stage
    reshard_root: bool  # whether it does so for what is in no block (vocabulary, last norm)
    root: Literal["whole", "modules"]  # whether that is gathered at once, or module by module
    prefetch: Count  # blocks gathered ahead
    loss_inside: bool  # whether the module that is wrapped makes its loss itself
    offloads_beside: bool  # whether activations go to the host and come back beside kernels; else kernels wait
    whole_experts: Literal["always", "alone", "never"]  # whether none is cut for zero2, zero3; alone: without epN
    copied: bool  # whether gathered weights are copied out of their message, and gradients into theirs
    keeps_messages: bool  # whether these are kept beside the next layer's, as memory of their own
    slice: Seconds  # of the host, for each rank's slice of each tensor that is gathered after the update
