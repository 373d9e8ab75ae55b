"""What a trainer does with layers and micro-batches on a pipeline."""

from __future__ import annotations

from typing import Literal

import msgspec

from foretell.plan.figures import Bytes


class Stages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How layers become stages, and which orders of micro-batches run."""

    split: Literal["even", "parameters", "nanotron", "torchtitan"]
    schedules: tuple[str, ...]
    least_microbatches: Literal["any", "ranks - 1", "ranks"]  # of 1f1b
    sends: Bytes  # of activations, that a stage hands to the next in a second at most; 0: as fast as links and network
    interleaved: Literal["any", "multiple", "rounds"]  # asked of micro-batches: a multiple of the ranks, equal rounds
    keeps_buffers: bool  # whether a stage has buffers for the messages of every micro-batch, all the time
