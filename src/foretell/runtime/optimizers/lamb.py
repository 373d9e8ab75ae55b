# pyright: basic
"""LAMB: Adam whose step is as long as the layer's weights (You et al. 2020, arXiv 1904.00962, algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch

from foretell.runtime.optimizers._layerwise import Layerwise, norm, ratio


class Lamb(Layerwise):
    """r = m' / (sqrt(v') + e) + d w, with Adam's moments m', v' corrected for their start; w = w - lr (|w| / |r|) r."""

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, settings: dict[str, Any], weight: torch.Tensor, gradient: torch.Tensor, scaled: bool) -> None:
        state = self.state[weight]
        if not state:
            state |= {"step": 0, "first": torch.zeros_like(weight), "second": torch.zeros_like(weight)}
        state["step"] += 1
        one, two = settings["betas"]
        state["first"].mul_(one).add_(gradient, alpha=1 - one)
        state["second"].mul_(two).addcmul_(gradient, gradient, value=1 - two)
        first = state["first"] / (1 - one ** state["step"])
        second = state["second"] / (1 - two ** state["step"])
        change = first / (second.sqrt() + settings["eps"])
        rate: Any = settings["lr"]
        if scaled:
            change = change + settings["weight_decay"] * weight
            rate = rate * ratio(norm(weight), norm(change))
        weight.sub_(change * rate)
