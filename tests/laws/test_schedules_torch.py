"""Our lists are PyTorch's own where it has the schedule: the same slots, in the same order, on every rank."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from foretell.plan.schedule import Slot, find

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
pytestmark = pytest.mark.slow

KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
SIZES = [(1, 1), (1, 4), (2, 2), (2, 4), (2, 12), (3, 3), (3, 9), (4, 4), (4, 8), (4, 16), (6, 18), (8, 8), (8, 32)]


def slots(actions: list[Any]) -> tuple[Slot, ...]:
    """The computations among PyTorch's actions; gaps, sends and reductions are left out."""
    found: list[Slot] = []
    for action in actions:
        if action is not None and action.sub_actions:
            found += slots(list(action.sub_actions))
        elif action is not None and action.computation_type.name in KINDS:
            found.append(Slot(KINDS[action.computation_type.name], action.stage_index, action.microbatch_index))  # type: ignore[arg-type]
    return tuple(found)


def torch_order(schedule: type, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[Slot, ...], ...]:
    """The lists of a PyTorch schedule, without processes: its stages only have to say how many there are."""
    from torch.distributed.pipelining.stage import PipelineStage

    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.num_stages, stage.submod = 0, ranks, ranks * chunks, None
    single = issubclass(schedule, schedules.PipelineScheduleSingle)
    made = schedule(stage if single else [stage] * chunks, microbatches)
    order = made._get_pipeline_order() if single else made.pipeline_order
    found = [slots(order[rank]) for rank in range(ranks)]
    if schedule is schedules.Schedule1F1B:
        found[-1] = tuple(_from_zero(slot) for slot in found[-1])
    return tuple(found)


def _from_zero(slot: Slot) -> Slot:
    """Torch's listing of 1F1B numbers the last rank's forwards from one; what it runs there begins with zero."""
    return slot._replace(microbatch=slot.microbatch - 1) if slot.kind == "F" else slot


@pytest.mark.parametrize(
    ("name", "theirs", "chunks"),
    [
        ("gpipe", "ScheduleGPipe", 1),
        ("1f1b", "Schedule1F1B", 1),
        ("interleaved", "ScheduleInterleaved1F1B", 2),
        ("interleaved", "ScheduleInterleaved1F1B", 3),
        ("zb-h1", "ScheduleInterleavedZeroBubble", 1),
        ("zb-v", "ScheduleZBVZeroBubble", 2),
        ("dualpipe-v", "ScheduleDualPipeV", 2),
    ],
)
def test_our_lists_are_torchs(name: str, theirs: str, chunks: int) -> None:
    schedule = find(name)
    sizes = [size for size in SIZES if not any(schedule.refusals(*size, chunks))]
    assert len(sizes) >= 5
    for ranks, microbatches in sizes:
        expected = torch_order(getattr(schedules, theirs), ranks, microbatches, chunks)
        assert schedule.order(ranks, microbatches, chunks) == expected, (ranks, microbatches)


@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 2), (2, 4), (4, 8), (4, 10), (8, 20)])
def test_what_runs_together_in_dualpipe_v_is_torchs(ranks: int, microbatches: int) -> None:
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    theirs = get_schedule_ops("DualPipeV", ranks, microbatches, 2)
    blocks = find("dualpipe-v").blocks(ranks, microbatches, 2)
    assert [list(row) for row in blocks] == [[slots([action]) for action in row if action] for row in theirs]
