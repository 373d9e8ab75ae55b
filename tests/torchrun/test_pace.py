"""Ranks that compute otherwise than their machine: slow ones, and ones whose computing is a wait."""

from __future__ import annotations

import time

import torch
from torch import nn

from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.pace import LATE, LEARNT, NAP, Slowed, Waited

LARGE = torch.ones(600, 600)


def test_a_wait_stands_for_what_was_learnt_and_zeros_for_its_result() -> None:
    waited = Waited(5.0)
    with waited:
        for _ in range(LEARNT):
            assert bool((LARGE @ LARGE == 600).all())
        start = time.perf_counter()
        found = LARGE @ LARGE
        took = time.perf_counter() - start
    (known,) = [one for key, one in waited._known.items() if key[0] is torch.ops.aten.mm.default]
    assert found.shape == (600, 600) and not found.any()
    assert took >= 5 * known.seconds - LATE - NAP  # asleep, or without a core
    assert bool((LARGE @ LARGE == 600).all())


def test_what_would_be_written_over_stays_and_views_and_forms_are_made() -> None:
    total, moved = torch.zeros(600, 600), torch.zeros(1)
    with Waited(1.0):
        for _ in range(LEARNT + 2):
            assert total.add_(LARGE) is total
            assert LARGE.t()[:2].shape == (2, 600)
            moved.resize_(600, 600).resize_(1)
    assert bool((total == LEARNT).all())
    assert moved.shape == (1,)


def test_steps_of_an_optimizer_are_waited_for() -> None:
    layer = nn.Linear(600, 600)
    layer.weight.grad, layer.bias.grad = torch.ones(600, 600), torch.ones(600)
    update = torch.optim.SGD(layer.parameters(), lr=1.0, foreach=True)
    start = layer.weight.detach().clone()
    with Waited(1.0):
        for _ in range(LEARNT + 3):
            update.step()
    assert torch.allclose(start - layer.weight.detach(), torch.full((600, 600), float(LEARNT)), atol=1e-3)


def test_numbers_that_somebody_reads_are_right() -> None:
    updates = torch.zeros(())
    with Waited(1.0):
        for _ in range(LEARNT + 20):
            updates += 1
    assert updates.item() == LEARNT + 20


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
