"""Muon: matrices of layers step by the orthogonal matrix nearest to their momentum, all other weights by AdamW.

Five Newton-Schulz iterations in bf16, with PyTorch's coefficients and the rate that makes steps as long as AdamW's.
Tensor ranks step by the matrices that they have, as Megatron's do with `--muon-tp-mode blockwise`. Where states alone
lie in shares, ranks have whole matrices each (its `dist_muon`); where gradients do, momentum is gathered, every rank
computes the whole step, and keeps its share of it (Liu et al. 2025, algorithm 1).
"""

from __future__ import annotations

from typing import Any

import msgspec

from foretell.model.operator import OperatorPart
from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule
from foretell.model.optimizers.adamw import OPTIMIZER as ADAMW

ITERATIONS = 5
A, B, C = 3.4445, -4.775, 2.0315  # of x = A x + (B x x^T + C (x x^T)^2) x
LAUNCHES = 4 + 3 * ITERATIONS  # momentum, cast, norm, scale, and three products in each iteration


def newton_schulz(rows: int, columns: int) -> OperatorPart:
    """Products of one matrix in bf16, two bytes a number."""
    less, more = min(rows, columns), max(rows, columns)
    flops = ITERATIONS * (4 * less * less * more + 2 * less**3)
    moved = 2 * ITERATIONS * (2 * less * more + 2 * less * less)
    return OperatorPart(matrix=flops, read=moved, written=moved // 2, launches=LAUNCHES, fused=LAUNCHES)


def step(matrix: Any, gradient: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
    if not state:
        state["momentum"] = matrix.clone().zero_()
    state["momentum"].lerp_(gradient, 1 - settings["momentum"])
    x = gradient.lerp(state["momentum"], settings["momentum"]).bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    rate = 0.2 * max(matrix.shape[-2:]) ** 0.5 * settings["lr"]  # steps as long as AdamW's
    matrix.mul_(1 - settings["lr"] * settings["weight_decay"])
    matrix.sub_(x if wide else x.mT, alpha=rate)


OPTIMIZER = Optimizer(
    summary="w = w - lr O, with O the orthogonal matrix nearest to the momentum; AdamW beside layers",
    references=("Jordan et al. 2024 (Muon)", "Liu et al. 2025 (its rate and decay), arXiv 2502.16982"),
    rule=msgspec.structs.replace(ADAMW.rule, makes_lists=False),  # weight by weight
    matrix_rule=UpdateRule(
        flops=8,
        states=(OptimizerState("momentum"),),
        kernels=4,
        of_matrix=newton_schulz,
        precision="bf16",
        step=step,
    ),
    arguments={**ADAMW.arguments, "momentum": 0.95},
    words={"deepspeed": "Muon"},
)
