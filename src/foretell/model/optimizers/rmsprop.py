"""RMSprop with momentum: steps by the gradient over the root of the mean of its square.

As EfficientNets and MobileNets are trained (Tan, Le 2019, arXiv 1905.11946: decay 0.9, momentum 0.9). Passes of kernels
that each do one line: v scaled (2), v plus g squared (3), its root (2), plus epsilon (2), the velocity scaled (2), plus
g over the root (4), the step (3).
"""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

OPTIMIZER = Optimizer(
    summary="u = m u + g / (sqrt(v) + e); w = w - lr u, with v the mean of the gradient's square",
    references=("Tieleman, Hinton 2012 (Coursera: neural networks for machine learning, lecture 6.5)",),
    rule=UpdateRule(
        flops=11,
        states=(OptimizerState("mean square"), OptimizerState("velocity")),
        kernels=7,
        passes=18,
        makes_lists=True,
    ),
    torch="RMSprop",
    arguments={"lr": 1e-3, "momentum": 0.9},
)
