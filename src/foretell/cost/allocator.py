"""What PyTorch's allocator of GPU memory reserves beside the tensors of a rank, from two of its rules.

Blocks belong to the stream on which they were allocated, and are used again on that stream alone: FSDP2 gathers
weights into blocks of a stream of its own, two units of them at a time. And a large free block is cut to serve a
smaller request: what is left of the largest one of a step serves no request of its size any more, so that it is
allocated once more. No constant was fitted. On 45 of 90 rehearsals on an H200 (PyTorch 2.11, the half that may be
looked at), with tensors and blocks as they were counted there, tensors alone are 22.9 % below what was reserved in the
median; with the blocks of other streams the error is 12.2 %, with the largest block 4.8 %
(`python studies/h200_rehearsals/streams.py`).
"""

from __future__ import annotations

from foretell.cost.memory import largest_units
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.program.action import Allocate, TrafficKind
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram, RankKind
from foretell.program.program import Program

AT_A_TIME = 2
"""Units whose weights are gathered at once: one computes, the next is on its way."""


def reserved_bytes(program: Program, place: int, allocated: float) -> float:
    """What the allocator of a rank at a place of the pipeline reserves when so many bytes in tensors are its most."""
    own = expand(program)
    kind = own.kinds[place]
    pool = max(0.0, gathered_pool(program, own, kind) - max(_gathered_at_peak(program, at) for at in kind.stages))
    return allocated + largest_block(own, kind) + pool


def _gathered_at_peak(program: Program, at: int) -> float:
    """Bytes that a stage has at most for what weights are gathered into: these blocks are of the other stream."""
    own = program.own(at)
    each = program.weight_state.care(own, program.holders(at, own)).gathered_for(program.partition.runs(at))
    alone = tuple(one._replace(ahead=0.0, next=0.0) for one in each)
    whole, rest = (program.peaks(at, sizes) for sizes in (each, alone))
    return _number(max(whole.forward_peak, whole.backward_peak) - max(rest.forward_peak, rest.backward_peak))


def largest_block(own: ExpandedProgram, kind: RankKind) -> float:
    """Bytes of the largest tensor that comes and goes within a step."""
    walked = (action for body, _, _ in own.walk(kind) for action in body.actions if isinstance(action, Allocate))
    return max((_number(action.bytes) for action in walked if action.kind != "message"), default=0.0)


def gathered_pool(program: Program, own: ExpandedProgram, kind: RankKind) -> float:
    """Bytes of the blocks into which weights that lie in shares are gathered, on a stream of their own."""
    data = program.plan.axis(Data)
    stored = STORAGES[data.storage] if data is not None else STORAGES["replicated"]
    if not stored.gradients:
        return 0.0  # weights are whole, or sent to whom they belong after their update
    sizes: list[float] = []
    for message, times in own.communications(kind):
        if message.kind == "all-gather" and message.what == TrafficKind.WEIGHTS:
            units = max(1, times // program.plan.microbatches)  # a unit is gathered for each micro-batch anew
            sizes += [_number(message.payload) * message.ranks] * min(AT_A_TIME, units)
    if stored.weights:
        return sum(sorted(sizes)[-AT_A_TIME:])
    largest = largest_units(program.setting.graph)  # the program has one message for all units that stay whole
    return sum(sizes) * (largest.layer + largest.second)


def _number(size: object) -> float:
    assert isinstance(size, int | float), "a program of one plan has sizes, not arrays of them"
    return float(size)
