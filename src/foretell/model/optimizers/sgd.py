"""Stochastic gradient descent, plain."""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, UpdateRule

OPTIMIZER = Optimizer(
    summary="w = w - lr g",
    references=("Ben-Nun, Hoefler 2019 (Table 3), arXiv 1802.09941",),
    rule=UpdateRule(flops=2, kernels=1, passes=3),
    torch="SGD",
    arguments={"lr": 0.05},
    words={"deepspeed": "SGD", "megatron-lm": "sgd"},
)
