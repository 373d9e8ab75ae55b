"""Ranks that compute otherwise than their machine: slow ones, and ones whose computing is a wait."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from foretell.lab.describe import described
from foretell.lab.network import LabNetwork
from foretell.runtime import compute_emulation, journal
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import computing, foreseen
from foretell.runtime.compute_emulation import BEHIND, LATE, LEARNT, NAP, PredictedWaits, Slowed, Waited, updated
from foretell.runtime.launch import Ranks

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


def _step(phases: dict[str, int]) -> None:
    """Products in each phase, as a step has them."""
    for phase, products in phases.items():
        journal.here().entered(phase)
        for _ in range(products):
            _ = LARGE @ LARGE


def test_waits_add_up_to_what_is_predicted_of_each_phase() -> None:
    said = {"forward": 0.05, "backward": 0.1, "optimizer": 0.01}
    products = {"forward": 2, "backward": 3, "optimizer": 1}
    waited = PredictedWaits(2.0, said)
    with waited:
        for _ in range(LEARNT + 1):
            _step(products)
        (known,) = [one for key, one in waited._known.items() if key[0] is torch.ops.aten.mm.default]
        start = time.perf_counter()
        _step(products)
        took = time.perf_counter() - start
    wanted = {phase: said[phase] / count for phase, count in products.items()}
    assert {phase: times * known.seconds for phase, times in waited._times.items()} == pytest.approx(wanted)
    assert took >= 2 * sum(said.values()) - BEHIND - NAP  # asleep, or without a core


class Clock:
    """Time that passes where somebody works or sleeps, and nowhere else."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That paces go by."""
    found = Clock()
    monkeypatch.setattr(compute_emulation, "time", found)
    return found


@pytest.mark.parametrize("talks", [False, True])
def test_steps_last_as_long_whatever_operators_took_in_the_one_before(
    talks: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, factor = {"forward": 0.05, "backward": 0.1, "optimizer": 0.02}, 2.0
    waited, took, steps = PredictedWaits(factor, said), 0.0, list[float]()

    def result(func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        clock.now += took
        return func(*args, **kwargs), took

    def update() -> None:
        _ = LARGE @ LARGE
        if talks:
            waited._apart(clock.sleep, (0.0,), {})

    monkeypatch.setattr(waited, "_result", result)
    with waited:
        for took in (1e-2, 1e-3, 5e-4, 8e-3, 1e-4, 1e-2, 1e-4, 1e-3):  # noqa: B007, each operator of a step
            start = clock.now
            _step({"forward": 2, "backward": 3})
            journal.here().entered("optimizer")
            updated(update)
            steps.append(clock.now - start)
    assert steps == pytest.approx([factor * sum(said.values())] * len(steps), abs=2 * NAP)


def test_messages_are_no_part_of_a_wait(clock: Clock) -> None:
    """Who waits for others is not ahead of its own work afterwards."""
    waited = PredictedWaits(1.0, {"forward": 1.0})
    with waited:
        _step({"forward": 1})
        waited._debt = 0.0
        waited._apart(clock.sleep, (2 * BEHIND,), {})
        waited._pay(0.0)
    assert waited._debt > -BEHIND


@pytest.mark.parametrize("talks", [False, True])
def test_one_wait_stands_for_an_optimizer_that_talks_to_nobody(talks: bool) -> None:
    done: list[float] = []
    waited = PredictedWaits(1.0, {"optimizer": 0.01})

    def step() -> None:
        done.append(float((LARGE[0] @ LARGE[0]).item()))
        if talks:
            waited._apart(time.sleep, (0.0,), {})

    with waited:
        for _ in range(LEARNT + 2):
            journal.here().entered("optimizer")
            updated(step)
    assert len(done) == LEARNT + 2 * talks


SMALL = "llama:layers=4,hidden=64,heads=4,ffn=128,vocab=100,seq=16"
HOSTS = described(LabNetwork(hosts=2, rate=125e6, delay=1e-3))


@pytest.mark.parametrize("plan", ["dp2", "tp2", "dp2:zero3"])
def test_ranks_compute_as_long_as_their_prediction_says(plan: str) -> None:
    asked = Assignment(model=SMALL, plan=plan, batch=8)
    first, last = computing(asked, HOSTS, "none")
    predicted = foreseen(asked, HOSTS, "none").breakdown
    assert first == last == pytest.approx({phase: predicted[phase] for phase in first}, rel=1e-3)


def test_ranks_of_a_pipeline_compute_what_their_stages_have() -> None:
    first, last = computing(Assignment(model=SMALL, plan="pp2:1f1b,split=1/3 +m4", batch=8), HOSTS, "none")
    assert 2 * first["forward"] < last["forward"]
    assert 2 * first["backward"] < last["backward"]


def test_a_slow_rank_computes_the_same() -> None:
    with Slowed(3.0):
        found = LARGE @ LARGE
    assert bool((found == 600).all())


def test_a_run_of_waits_says_the_same_to_others(ranks: Ranks) -> None:
    asked = {"model": "lenet", "plan": "dp2", "batch": 64, "steps": 4}
    foretold = ({"forward": 0.02, "backward": 0.04, "optimizer": 0.01},) * 2
    kinds = {"waits": True}, {"waits": True, "computes": foretold}
    real, *others = (ranks.run(Assignment(**asked, **more), 400) for more in ({}, *kinds))  # type: ignore[arg-type]
    for waited in others:
        assert [report.collectives for report in waited] == [report.collectives for report in real]
        assert all(len(report.steps) == 4 for report in waited)
