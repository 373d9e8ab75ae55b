"""AdamW: Adam, and the weight itself decays. Its kernels do one line more than Adam's: they scale the weight (2)."""

from __future__ import annotations

from typing import Any

from foretell.model.optimizer import Optimizer, UpdateRule
from foretell.model.optimizers.adam import MOMENTS


def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    """Weight by weight, for optimizers that step so where their own rule is not meant; torch's class is by lists."""
    if not state:
        state |= {"step": 0, "first": weight.clone().zero_(), "second": weight.clone().zero_()}
    state["step"] += 1
    (one, two), rate = settings["betas"], settings["lr"]
    state["first"].lerp_(gradient, 1 - one)
    state["second"].mul_(two).addcmul_(gradient, gradient, value=1 - two)
    root = (state["second"] / (1 - two ** state["step"])).sqrt_().add_(settings["eps"])
    weight.mul_(1 - rate * settings["weight_decay"])
    weight.addcdiv_(state["first"], root, value=-rate / (1 - one ** state["step"]))


OPTIMIZER = Optimizer(
    summary="w = (1 - lr d) w, then a step of Adam",
    references=("Loshchilov, Hutter 2019, arXiv 1711.05101",),
    rule=UpdateRule(flops=14, states=MOMENTS, kernels=8, passes=20, makes_lists=True, step=step),
    torch="AdamW",
    arguments={"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    words={"deepspeed": "AdamW", "megatron-lm": "adam", "torchtitan-toml": "AdamW"},
)
