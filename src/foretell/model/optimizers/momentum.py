"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

OPTIMIZER = Optimizer(
    summary="v = m v + g; w = w - lr v",
    references=("Ben-Nun, Hoefler 2019 (Table 3), arXiv 1802.09941",),
    rule=UpdateRule(flops=4, states=(OptimizerState("velocity"),), kernels=3, passes=8),
    torch="SGD",
    arguments={"lr": 0.05, "momentum": 0.9},
)
