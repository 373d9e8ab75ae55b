"""AdaGrad: steps by the gradient over the root of the sum of all its squares.

Passes of kernels that each do one line: the sum plus g squared (3), its root (2), plus epsilon (2), the step (4).
"""

from __future__ import annotations

from foretell.model.optimizer import Optimizer, OptimizerState, UpdateRule

OPTIMIZER = Optimizer(
    summary="a = a + g^2; w = w - lr g / (sqrt(a) + e)",
    references=("Duchi, Hazan, Singer 2011, JMLR 12", "Ben-Nun, Hoefler 2019 (Table 3), arXiv 1802.09941"),
    rule=UpdateRule(flops=6, states=(OptimizerState("sum of squares"),), kernels=4, passes=11, makes_lists=True),
    torch="Adagrad",
    arguments={"lr": 1e-2},
    words={"deepspeed": "Adagrad"},
)
