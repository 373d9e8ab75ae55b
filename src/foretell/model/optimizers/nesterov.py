"""Stochastic gradient descent with Nesterov's momentum: the gradient is taken where the momentum leads.

Written as torch does: the step is the gradient and the velocity after it. Passes of kernels that each do one line: the
velocity scaled (2), plus g (3), g plus the velocity (3), the step (3).
"""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

OPTIMIZER = Optimizer(
    summary="v = m v + g; w = w - lr (g + m v)",
    references=(
        "Nesterov 1983, Soviet Mathematics Doklady 27; Sutskever et al. 2013, ICML",
        "Ben-Nun, Hoefler 2019 (Table 3), arXiv 1802.09941",
    ),
    rule=UpdateRule(flops=6, states=(OptimizerState("velocity"),), kernels=4, passes=11),
    torch="SGD",
    arguments={"lr": 0.05, "momentum": 0.9, "nesterov": True},
)
