"""Waiting inside a backward pass is told once, whoever hears of it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from foretell.runtime import waiting
from foretell.runtime.clock import Clock


def test_a_compressor_that_waits_after_the_last_gradient_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the time is a second after the one before."""
    layer, clock = nn.Linear(2, 2, bias=False), Clock(torch.device("cpu"))
    last = waiting.LastGradient(layer, "dp")
    seconds = itertools.count()
    monkeypatch.setattr(waiting.time, "perf_counter", lambda: float(next(seconds)))
    waited = waiting._timed(lambda: None, clock, "dp")
    with clock.phase("backward"):
        layer(torch.ones(1, 2)).sum().backward()  # 0: the last gradient is made
        waited()  # 1 to 2
        waited()  # 3 to 4
        last.passed(clock)  # 5
        assert clock._now["exposed.dp"] == 1 + 1 + (5 - 2)
