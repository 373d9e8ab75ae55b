"""Lion: steps by the sign of the momentum, which is all that it keeps."""

from __future__ import annotations

from typing import Any

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule


def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    if not state:
        state["momentum"] = weight.clone().zero_()
    (one, two), rate = settings["betas"], settings["lr"]
    change = state["momentum"].lerp(gradient, 1 - one).sign_()
    weight.mul_(1 - rate * settings["weight_decay"]).sub_(change * rate)
    state["momentum"].lerp_(gradient, 1 - two)


OPTIMIZER = Optimizer(
    summary="w = (1 - lr d) w - lr sign(b1 m + (1 - b1) g), then m = b2 m + (1 - b2) g",
    references=("Chen et al. 2023 (symbolic discovery, algorithm 2), arXiv 2302.06675",),
    rule=UpdateRule(flops=9, states=(OptimizerState("momentum"),), kernels=5, passes=13, step=step),
    arguments={"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.01},
    words={"deepspeed": "Lion"},
)
