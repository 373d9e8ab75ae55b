"""AdamW with moments in bf16, whatever the weights are updated in: Megatron-Core's precision-aware optimizer."""

from __future__ import annotations

from typing import Any

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule
from foretell.model.optimizers.adamw import OPTIMIZER as ADAMW


def step(weight: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    if not state:
        state |= {"step": 0, "first": weight.bfloat16().zero_(), "second": weight.bfloat16().zero_()}
    state["step"] += 1
    (one, two), rate = settings["betas"], settings["lr"]
    slope = gradient.float()
    first, second = state["first"].float().lerp_(slope, 1 - one), state["second"].float()
    second.mul_(two).addcmul_(slope, slope, value=1 - two)
    state["first"].copy_(first)
    state["second"].copy_(second)
    root = (second / (1 - two ** state["step"])).sqrt_().add_(settings["eps"])
    weight.mul_(1 - rate * settings["weight_decay"])
    weight.add_(first / root * (-rate / (1 - one ** state["step"])))


OPTIMIZER = Optimizer(
    summary="AdamW whose moments are stored in bf16, with master weights as the precision has them",
    references=(
        "Megatron-Core 0.15, megatron/core/optimizer/optimizer_config.py: use_precision_aware_optimizer, exp_avg_dtype",
        "DeepSeek-AI 2024 (section 3.3.3), arXiv 2412.19437",
    ),
    rule=UpdateRule(
        flops=14,
        states=(OptimizerState("first moment", 2.0), OptimizerState("second moment", 2.0)),
        kernels=1,
        step=step,
    ),
    arguments=ADAMW.arguments,
)
