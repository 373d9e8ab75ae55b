"""LARS: momentum with a rate of its own for each layer."""

from __future__ import annotations

from typing import Any

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule
from foretell.model.optimizers._norms import norm, ratio


def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    rate, change = settings["lr"], gradient
    if weight.dim() > 1:
        decay, length = settings["weight_decay"], norm(weight)
        rate = rate * settings["trust"] * ratio(length, norm(gradient) + decay * length)
        change = gradient + decay * weight
    if not state:
        state["velocity"] = weight.clone().zero_()
    state["velocity"].mul_(settings["momentum"]).add_(change * rate)
    weight.sub_(state["velocity"])


OPTIMIZER = Optimizer(
    summary="v = m v + lr (trust |w| / (|g| + d |w|)) (g + d w); w = w - v",
    references=("You, Gitman, Ginsburg 2017 (algorithm 1), arXiv 1708.03888",),
    rule=UpdateRule(flops=8, states=(OptimizerState("velocity"),), kernels=6, norm_passes=1, step=step),
    arguments={"lr": 1.0, "momentum": 0.9, "weight_decay": 1e-4, "trust": 0.001},
)
