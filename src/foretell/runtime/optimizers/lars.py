# pyright: basic
"""LARS: momentum with a rate of its own for each layer (You, Gitman, Ginsburg 2017, arXiv 1708.03888, algorithm 1)."""

from __future__ import annotations

from typing import Any

import torch

from foretell.runtime.optimizers._layerwise import Layerwise, norm, ratio


class Lars(Layerwise):
    """v = m v + lr (trust |w| / (|g| + d |w|)) (g + d w); w = w - v."""

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.9, weight_decay: float = 1e-4, trust: float = 0.001
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    def update(self, settings: dict[str, Any], weight: torch.Tensor, gradient: torch.Tensor, scaled: bool) -> None:
        rate: Any = settings["lr"]
        change = gradient
        if scaled:
            decay, length = settings["weight_decay"], norm(weight)
            rate = rate * settings["trust"] * ratio(length, norm(gradient) + decay * length)
            change = gradient + decay * weight
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight)
        state["velocity"].mul_(settings["momentum"]).add_(change * rate)
        weight.sub_(state["velocity"])
