"""Ranks that compute otherwise than their machine: slow ones, and ones whose computing is a wait."""

from __future__ import annotations

import torch
from torch import nn

from foretell.runtime.assignment import Assignment
from foretell.runtime.clock import HostMarks
from foretell.runtime.launch import Ranks
from foretell.runtime.pace import LEARNT, Slowed, Waited

LARGE = torch.ones(600, 600)


def test_a_wait_stands_for_what_was_learnt_and_zeros_for_its_result() -> None:
    before = HostMarks.slept
    with Waited(1.0):
        for _ in range(LEARNT):
            assert bool((LARGE @ LARGE == 600).all())
        assert HostMarks.slept == before
        found = LARGE @ LARGE
    assert found.shape == (600, 600) and not found.any()
    assert HostMarks.slept > before
    assert bool((LARGE @ LARGE == 600).all())


def test_what_is_written_over_and_what_is_short_is_done() -> None:
    total, small = torch.zeros(600, 600), torch.ones(2)
    with Waited(1.0):
        for _ in range(LEARNT + 2):
            total.add_(LARGE)
            assert (small + small).tolist() == [2, 2]
            assert torch.equal(LARGE.t()[:2], LARGE[:2])
    assert bool((total == LEARNT + 2).all())


def test_gradients_have_their_shapes_though_nobody_computes_them() -> None:
    layer, data = nn.Linear(600, 600), torch.ones(600, 600)
    with Waited(1.0):
        for _ in range(LEARNT + 1):
            layer.zero_grad()
            layer(data).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.shape == (600, 600)


def test_a_slow_rank_computes_the_same() -> None:
    with Slowed(3.0):
        found = LARGE @ LARGE
    assert bool((found == 600).all())


def test_a_run_of_waits_says_the_same_to_others(ranks: Ranks) -> None:
    asked = {"model": "lenet", "plan": "dp2", "batch": 64, "steps": 4}
    real, waited = (ranks.run(Assignment(**asked, waits=waits), 400) for waits in (False, True))  # type: ignore[arg-type]
    assert [report.collectives for report in waited] == [report.collectives for report in real]
    assert all(len(report.steps) == 4 for report in waited)
