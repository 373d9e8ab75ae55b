"""LAMB: Adam whose step is as long as the layer's weights."""

from __future__ import annotations

from typing import Any

from foretell.model.optimizer import Optimizer, UpdateRule
from foretell.model.optimizers._norms import norm, ratio
from foretell.model.optimizers.adam import MOMENTS


def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    if not state:
        state |= {"step": 0, "first": weight.clone().zero_(), "second": weight.clone().zero_()}
    state["step"] += 1
    one, two = settings["betas"]
    state["first"].mul_(one).add_(gradient, alpha=1 - one)
    state["second"].mul_(two).addcmul_(gradient, gradient, value=1 - two)
    first = state["first"] / (1 - one ** state["step"])
    second = state["second"] / (1 - two ** state["step"])
    change, rate = first / (second.sqrt() + settings["eps"]), settings["lr"]
    if weight.dim() > 1:
        change = change + settings["weight_decay"] * weight
        rate = rate * ratio(norm(weight), norm(change))
    weight.sub_(change * rate)


OPTIMIZER = Optimizer(
    summary="r = m' / (sqrt(v') + e) + d w, with Adam's moments; w = w - lr (|w| / |r|) r",
    references=("You et al. 2020 (algorithm 2), arXiv 1904.00962",),
    rule=UpdateRule(flops=18, states=MOMENTS, kernels=14, norm_passes=2, step=step),
    arguments={"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01},
    words={"deepspeed": "Lamb"},
)
